"""How near Serai is to the physical limit: one run, pinned, ratios, next to C and later to the peers. `make bench`."""
