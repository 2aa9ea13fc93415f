"""The settings: typed, frozen, passed down."""
