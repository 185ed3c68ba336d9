"""The form of every JSON answer: a shape has exactly the fields of its answer.

`millpond.api.encode` writes answers column by column, without these classes; a test compares every
answer with its shape. The OpenAPI document is made from them.
"""
