module probe_go

go 1.26
