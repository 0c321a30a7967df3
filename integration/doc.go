// Package integration shows on real servers that the lock does in each fault what its documentation says. Its tests
// are the content; servers starts what they run on, fenced has stores that check a fence, bench measures.
//
// Each test is named as a claim, and runs on every kind of server that is to be had, see
// [github.com/seed71a1c8e3/redlock/integration/servers]; what an embedded node cannot do is left to the others.
//
//	go test ./...                                      # all kinds
//	REDLOCK_TEST_PROVIDER=processes go test ./...      # one of them
//
// After each test no key of ours may be left on any server for longer than the library promises, and no goroutine.
package integration
