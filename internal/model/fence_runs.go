package main

import "slices"

// The configurations. Where a rule is broken the smallest that shows it is used.
var (
	fencePair    = fenceModel{nodes: 3, wants: []uint8{1, 1}, propose: 3}
	fenceThree   = fenceModel{nodes: 3, wants: []uint8{1, 1, 1}, propose: 1}
	fenceFive    = fenceModel{nodes: 5, wants: []uint8{1, 1}, propose: 3}
	fenceFour    = fenceModel{nodes: 4, wants: []uint8{1, 1}, propose: 2}
	fenceShared  = fenceModel{nodes: 3, wants: []uint8{1, 1, 2}}
	fenceStriped = fenceModel{nodes: 3, wants: []uint8{3, 2}, stripeOf: [fenceResources]int{0, 1}, propose: 3}
	fenceMulti   = fenceModel{nodes: 3, wants: []uint8{3, 1, 2}, stripeOf: [fenceResources]int{0, 1}}
	fenceReaders = fenceModel{nodes: 3, wants: []uint8{1, 1, 1}, reads: 0b110}
	fenceResend  = fenceModel{nodes: 3, wants: []uint8{1, 1}, resends: 0b11}
	fenceForgets = fenceModel{nodes: 3, wants: []uint8{1, 1}, losses: 2}
	fenceBlank   = fenceModel{nodes: 3, wants: []uint8{1, 1}, losses: 1, blank: true}
)

// without returns the configuration with some rules broken.
func (m fenceModel) without(r fenceRule) fenceModel { m.rule |= r; return m }

// proposing returns the configuration with proposals of at most p.
func (m fenceModel) proposing(p uint8) fenceModel { m.propose = p; return m }

// losing returns the configuration in which nodes forget so many times.
func (m fenceModel) losing(times uint8) fenceModel { m.losses = times; return m }

// resending returns the configuration in which these acquisitions are sent twice.
func (m fenceModel) resending(set uint8) fenceModel { m.resends = set; return m }

// reading returns the configuration with these readers.
func (m fenceModel) reading(set uint8) fenceModel { m.reads = set; return m }

// of returns the configuration with so many nodes.
func (m fenceModel) of(nodes int) fenceModel { m.nodes = nodes; return m }

// onlyEqual returns the configuration with a weaker promise: no two owners have one fence.
func (m fenceModel) onlyEqual() fenceModel { m.unique = true; return m }

// fenceCase is a question about fences.
type fenceCase struct {
	name, says string
	convicted  bool
	model      fenceModel
}

func fenceCases() []fenceCase {
	return slices.Concat(fenceSound(), fenceRaises(), fenceScripts(), fenceHeals())
}

func fenceRuns() (all []run) {
	for _, c := range fenceCases() {
		do := func(limit int) result { return explore(newFence(c.model), limit) }
		all = append(all, run{"fence/" + c.name, c.says, c.convicted, do})
	}
	return all
}

// fenceSound are the protocol as it is.
func fenceSound() []fenceCase {
	return []fenceCase{
		fenceHolds("3 nodes, 2 clients", fencePair, "fences rise in the order of ownership"),
		fenceHolds("3 nodes, 3 clients", fenceThree, "the same"),
		fenceHolds("4 nodes, 2 clients", fenceFour, "the same, where a majority is more than half and one"),
		fenceHolds("5 nodes, 2 clients", fenceFive, "the same"),
		fenceHolds("shared stripe", fenceShared, "another resource on the same stripe does no harm"),
		fenceHolds("2 stripes", fenceStriped, "two resources at once against one of them"),
		fenceHolds("2 stripes, 3 clients", fenceMulti, "two resources at once against each of them"),
		fenceHolds("resend", fenceResend.proposing(2),
			"an acquire may be sent twice, if its first copy is dead when the second is counted"),
		fenceHolds("resend, 2 stripes", fenceStriped.proposing(1).resending(0b11),
			"the same, with two resources at once"),
		fenceHolds("readers", fenceReaders, "two readers and a writer: only the writer's place matters"),
		fenceHolds("writers and a reader", fenceReaders.reading(0b100), "two writers and a reader"),
		fenceHolds("nodes forget", fenceForgets,
			"two losses of memory; surveys of any length, and swaps that come long after them"),
		fenceHolds("node forgets, proposals", fenceForgets.losing(1).proposing(2), "a loss of memory, and proposals"),
		fenceHolds("node forgets, resend", fenceForgets.losing(1).resending(0b10), "a loss of memory, and resends"),
		fenceHolds("node forgets, 2 stripes", fenceStriped.proposing(1).losing(1),
			"a loss of memory, and two resources at once"),
		fenceHolds("node of 5 forgets", fenceForgets.losing(1).of(5), "a loss of memory among five nodes"),
	}
}

// fenceRaises are about what makes a node carry a fence.
func fenceRaises() []fenceCase {
	return []fenceCase{
		fenceBroken("raise not ours", fencePair.without(fenceRaiseNotOurs),
			"a raise is confirmed where our key is gone"),
		fenceHolds("raise uncounted", fencePair.without(fenceRaiseUncounted),
			"a raise writes where our key is gone, but does not count"),
		fenceBroken("raise one key", fenceMulti.proposing(1).without(fenceRaiseOneKey),
			"a raise looks at the first of several keys"),
		fenceHolds("raise, then check", fencePair.without(fenceRaiseThenCheck),
			"a raise writes whatever it finds, and a second command looks for our key"),
		fenceBroken("check, then raise", fencePair.without(fenceCheckThenRaise),
			"a raise looks for our key, and a second command writes"),
		fenceBroken("raise one stripe", fenceStriped.without(fenceRaiseOneStripe),
			"a raise raises the first of several stripes"),
		fenceBroken("count above", fencePair.without(fenceCountAbove),
			"a late grant that answered more than the fence is counted"),
		fenceBroken("refill early", fencePair.without(fenceRefillEarly),
			"nodes are refilled before the lock is reported, and then raised"),
		fenceHolds("refill early, spent", fencePair.without(fenceRefillEarly|fenceRefillSpends),
			"the same, but a node that was sent a refill is not counted any more"),
		fenceBroken("refill counts", fencePair.without(fenceRefillCounts), "a refill is counted as carrying"),
		fenceBroken("no raise", fencePair.without(fenceNoRaise),
			"K answers of at most the fence are enough, without a raise"),
		fenceBroken("smallest", fencePair.without(fenceSmallest), "the fence is the smallest answer"),
		fenceHolds("only equal", fencePair.without(fenceOnlyEqual), "no raise, and only K equal answers make a lock"),
	}
}

// fenceScripts are about the script that grants.
func fenceScripts() []fenceCase {
	return []fenceCase{
		fenceBroken("unstored", fencePair.without(fenceUnstored), "an answer is counted that was not stored"),
		fenceBroken("stored later", fencePair.without(fenceStoredLater), "the answer is stored by a second command"),
		fenceHolds("fail after set", fencePair.without(fenceDieAfterSet),
			"SET before the counter may fail between them, but nothing is sent twice"),
		fenceBroken("fail after set, resend", fenceResend.without(fenceDieAfterSet),
			"the same with a resend, which finds its key and does not increment"),
		fenceHolds("fail after set, increment", fenceResend.without(fenceDieAfterSet|fenceResendIncrements),
			"the same with a resend that increments"),
		fenceHolds("resend increments", fenceResend.proposing(1).without(fenceResendIncrements),
			"a resend increments though its key is there"),
		fenceBroken("resend one key", fenceStriped.proposing(1).resending(0b11).without(fenceResendOneKey),
			"a resend looks at the first of several keys"),
		fenceBroken("silent copy", fenceResend.without(fenceSilentCopy),
			"the first copy of an acquire arrives after the second was counted"),
		fenceHolds("silent copy, equal", fenceResend.without(fenceSilentCopy|fenceCopyNeedsM),
			"the same, but a node that was sent two copies counts only if it answered the fence"),
		fenceBroken("readers share", fenceReaders.without(fenceReadersShare),
			"a reader that finds another there does not increment"),
	}
}

// fenceHeals are about nodes that lost their memory.
func fenceHeals() []fenceCase {
	twice := fenceBlank.losing(2)
	return []fenceCase{
		fenceBroken("unsteady votes", fenceBlank.without(fenceUnsteadyVotes), "nodes that forgot vote"),
		fenceHolds("unsteady writes", fenceForgets.losing(1).without(fenceUnsteadyWrites),
			"nodes that forgot set keys, without a vote, and nothing is sent twice"),
		fenceBroken("unsteady writes, resend", fenceBlank.resending(0b10).without(fenceUnsteadyWrites),
			"the same with a resend that comes when the node is healed"),
		fenceBroken("heal before", fenceBlank.without(fenceHealBefore), "stripes read before the node forgot"),
		fenceBroken("heal few", fenceBlank.without(fenceHealFew), "stripes read on one node less than a majority"),
		fenceHolds("heal few of 4", fenceForgets.losing(1).of(4).without(fenceHealFew),
			"the same with four nodes, where N-K+1 is less than a majority"),
		fenceBroken("heal unread", fenceBlank.without(fenceHealUnread), "nothing is read or raised"),
		fenceBroken("heal unguarded", fenceBlank.without(fenceHealUnguarded),
			"stripes read before the guard is over"),
		fenceBroken("heal other run", twice.without(fenceHealOtherRun), "a swap that comes after another loss"),
		fenceBroken("heal from unsteady", twice.without(fenceHealFromUnsteady), "stripes read on nodes that forgot"),
		fenceBroken("heal alone", twice.without(fenceHealAlone),
			"no majority is steady, and nothing is read: only clocks can help"),
	}
}

// fenceHolds is a protocol that keeps the whole promise.
func fenceHolds(name string, m fenceModel, says string) fenceCase {
	return fenceCase{name, says, false, m}
}

// fenceBroken is a protocol that gives two owners one fence.
func fenceBroken(name string, m fenceModel, says string) fenceCase {
	return fenceCase{name, says, true, m.onlyEqual()}
}
