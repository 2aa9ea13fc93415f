"""The language: from text to trees that know their places, and back. Pure; knows no relation, no type and no user of it."""
