"""Models: the catalogue, the choice among them, and who streams their answers."""
