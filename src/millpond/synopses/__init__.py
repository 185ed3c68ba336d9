"""State structures of operators: each keeps what its name says, for many groups in one array.

All of them are exact, and all of them forget completely: once everything that was put in has been
taken out again, what they say, and what they keep, is what it was before.
"""
