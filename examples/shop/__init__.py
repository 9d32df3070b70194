"""A shop whose agent refunds customers through a payment provider that can misbehave."""
