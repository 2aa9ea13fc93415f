"""Pictures for notebooks: HTML and SVG as texts, readable in light and dark, without scripts and without any library."""
