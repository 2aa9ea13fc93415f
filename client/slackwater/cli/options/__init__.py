"""What commands share: the options that say which service is meant, how it fails, what is printed."""
