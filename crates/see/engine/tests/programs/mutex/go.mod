module mutex

go 1.21
