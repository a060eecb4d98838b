"""The SQL store (SQLAlchemy Core): SQLite now.

`tables` and `statements` say what is stored and asked; `backend` says what differs between databases and `sqlite` is
one; `plan` turns operations into statements, `group` and `greenlets` commit those of several callers together on the
connection of `writer`; `store` is the contract over them, `setup` creates and upgrades the tables.
"""
