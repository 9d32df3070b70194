"""The agents and tools whose runs fill the database, as a Django app like any user's."""
