module metahook/tests/bench/hooks/go

go 1.26
