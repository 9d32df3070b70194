"""Real third-party programs that the ready-made tools are tested against.

Guarantees: every target is a program that we did not write, in a process of its own, on loopback
alone, and ends with the test process; what it did is read from the target itself.
Does not hold for `fault_proxy`, which is ours and only carries bytes, and for `mail`, whose
mailboxes and faults are ours on top of somebody else's SMTP server.
"""
