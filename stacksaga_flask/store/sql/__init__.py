"""The SQL store (SQLAlchemy Core): SQLite and PostgreSQL.

`tables` and `statements` say what is stored and asked; `backend` says what differs between databases, and `sqlite` and
`postgresql` are one each; `plan` turns operations into statements. Where the database has one writer at a time, `group`
and `greenlets` commit those of several callers together on the connection of `writer`; elsewhere, and for reads,
`pooled` gives each caller a connection, and `deadline` says until when. `store` is the contract over them,
`setup` creates and upgrades the tables.
"""
