"""State structures of operators: each keeps what its name says, for many groups in one array.

All of them are exact, and all of them forget completely: when everything that was put in has been
taken out again, their answers and their contents are as if nothing had been put in.
"""
