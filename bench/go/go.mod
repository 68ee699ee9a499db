module serai/bench

go 1.22
