"""What stands before every route: foreign pages, sizes, ids."""
