"""How types are written, and as what they are printed."""

from __future__ import annotations

from typing import Final

TYPE_WORDS: Final = {
    "INT": "INT", "INTEGER": "INT", "BIGINT": "BIGINT", "LONG": "BIGINT", "DOUBLE": "DOUBLE", "FLOAT": "FLOAT", "REAL": "FLOAT",
    "DECIMAL": "DECIMAL", "NUMERIC": "DECIMAL", "STRING": "TEXT", "TEXT": "TEXT", "VARCHAR": "VARCHAR", "CHAR": "CHAR", "BOOLEAN": "BOOLEAN",
    "BOOL": "BOOLEAN", "TIMESTAMP": "TIMESTAMP", "TIMESTAMPTZ": "TIMESTAMPTZ", "DATETIME": "DATETIME", "DATE": "DATE", "TIME": "TIME",
    "BINARY": "BINARY", "VARBINARY": "VARBINARY", "ARRAY": "ARRAY", "MAP": "MAP",
}  # fmt: skip
"""A type's word, in upper case → as it is printed. Other words are printed as they are written."""

TYPE_PHRASES: Final = {
    ("DOUBLE", "PRECISION"): "DOUBLE",
    ("CHARACTER", "VARYING"): "VARCHAR",
    ("TIMESTAMP", "WITH", "TIME", "ZONE"): "TIMESTAMPTZ",
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"): "TIMESTAMP",
}
"""Types of several words."""
