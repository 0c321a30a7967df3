package main

import "testing"

const forgotten = "a rival gets the votes of a quorum that forgot the lock"

func TestASteadyNodeHasForgottenNothing(t *testing.T) {
	holdsNear(t, "marker/safe/one-client")
	holds(t, "marker/safe/flushed")
	holdsNear(t, "marker/safe")
}
func TestFirstUseAtOnceForgetsNothing(t *testing.T) {
	holds(t, "marker/first-use/shortest")
	holdsNear(t, "marker/first-use/two-nodes")
}
func TestFirstUseSurvivesAReplacedNode(t *testing.T)    { holdsNear(t, "marker/first-use/replaced") }
func TestFirstUseSurvivesAClockSetForward(t *testing.T) { holdsNear(t, "marker/first-use/clock") }
func TestAGuardOfEachClientIsEnoughForRestarts(t *testing.T) {
	holds(t, "marker/spare/guard-per-client")
}

func TestAGuardOfEachClientMissedAFlush(t *testing.T) {
	breaks(t, "marker/guard-per-client", forgotten)
}
func TestAStaleRunIDTrustedAnOldSnapshot(t *testing.T) { breaks(t, "marker/stale-run", forgotten) }
func TestAFlushWasTakenForFirstUse(t *testing.T) {
	breaks(t, "marker/missing-is-unused", forgotten)
	breaks(t, "marker/missing-is-unused/three", forgotten)
}
func TestAClockSetForwardEndedAGuard(t *testing.T)      { breaks(t, "marker/wall-clock", forgotten) }
func TestHealingBeforeTheGuardWasTooEarly(t *testing.T) { breaks(t, "marker/heals-early", forgotten) }
func TestARepeatedNonceHidAFlush(t *testing.T)          { breaks(t, "marker/same-nonce", forgotten) }
func TestALateOverwriteHidAFlush(t *testing.T)          { breaks(t, "marker/overwrites", forgotten) }
func TestAWriteSentTwiceHidAFlush(t *testing.T)         { breaks(t, "marker/resends", forgotten) }
func TestAFlushWasTakenForNewWithoutTheWitness(t *testing.T) {
	breaks(t, "marker/no-witness", forgotten)
}
func TestFirstUseRightAfterARestartWasTooEarly(t *testing.T) {
	breaks(t, "marker/no-uptime", forgotten)
}
func TestWatchingFromTheSendWasTooEarly(t *testing.T) { breaks(t, "marker/watch-from-send", forgotten) }
func TestFirstUseOfSomeNodesTrustedAnotherServer(t *testing.T) {
	breaks(t, "marker/some-unused/replaced", forgotten)
}
func TestFirstUseOfSomeNodesTrustedAClockSetForward(t *testing.T) {
	breaks(t, "marker/some-unused/clock", forgotten)
}
func TestFirstUseByOldLooksTrustedAnotherServer(t *testing.T) {
	breaks(t, "marker/old-looks/replaced", forgotten)
}

// The limits: what the marker cannot show. docs/safety.md names them.
func TestTheMarkerDoesNotShowOldDataInTheSameProcess(t *testing.T) {
	breaks(t, "marker/limit/rollback", forgotten)
}
func TestTheWitnessDoesNotSurviveAScriptFlush(t *testing.T) {
	breaks(t, "marker/limit/script-flush", forgotten)
}
func TestUptimesAreTrueOnlyIfSomeClockIs(t *testing.T) {
	breaks(t, "marker/limit/all-clocks", forgotten)
}
func TestAllNodesReplacedAtOnceLookUnused(t *testing.T) {
	breaks(t, "marker/limit/all-replaced", forgotten)
}
