"""How types are written, and as what they are printed."""

from __future__ import annotations

from typing import Final

_WRITTEN: Final = {
    "INT": "INT INTEGER INT4 INT32",
    "BIGINT": "BIGINT LONG INT64",
    "DOUBLE": "DOUBLE FLOAT8",
    "FLOAT": "FLOAT REAL FLOAT4",
    "DECIMAL": "DECIMAL NUMERIC DEC NUMBER FIXED",
    "TEXT": "TEXT STRING LONGTEXT MEDIUMTEXT TINYTEXT CLOB",
    "VARCHAR": "VARCHAR NVARCHAR NVARCHAR2 VARCHAR2",
    "CHAR": "CHAR CHARACTER NCHAR",
    "BOOLEAN": "BOOLEAN BOOL",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMPTZ",
    "DATETIME": "DATETIME",
    "DATE": "DATE",
    "TIME": "TIME",
    "BINARY": "BINARY",
    "VARBINARY": "VARBINARY BYTEA BLOB",
    "ARRAY": "ARRAY",
    "MAP": "MAP",
    "STRUCT": "STRUCT",
}

TYPE_WORDS: Final = {word: name for name, words in _WRITTEN.items() for word in words.split()}
"""A type's word, in upper case → as it is printed. Other words are printed as they are written."""

TYPE_PHRASES: Final = {
    ("DOUBLE", "PRECISION"): "DOUBLE",
    ("CHARACTER", "VARYING"): "VARCHAR",
    ("CHAR", "VARYING"): "VARCHAR",
    ("TIMESTAMP", "WITH", "TIME", "ZONE"): "TIMESTAMPTZ",
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"): "TIMESTAMP",
}
"""Types of several words."""
