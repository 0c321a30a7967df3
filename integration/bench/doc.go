// Package bench measures redlock beside redsync and a plain quorum written with go-redis, on the same five servers in
// one run. Machines are noisy, so the variants take turns in short rounds and what counts is the median of their
// ratios.
//
//	go test -run '^$' -bench . -benchtime 1x ./bench
package bench
