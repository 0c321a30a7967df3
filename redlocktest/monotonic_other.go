//go:build !linux

package redlocktest

import "time"

// machineTime is the wall clock where there is no other that processes share:
// a step of it while a history is recorded spoils the history.
func machineTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
