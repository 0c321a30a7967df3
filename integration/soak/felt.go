package main

import (
	"errors"
	"fmt"
	"strings"
)

// A soak proves something only by what was really broken. A fault that could not be brought about is none: it excuses
// nothing, and if there are more than a few, the run fails.

// notDoneMost is the share of faults that may fail to be brought about, in percent; one may in any run.
const notDoneMost = 5

// checkFelt says what was not broken although it was to be.
func (r *run) checkFelt(s *summary) error {
	var errs []error
	if s.Faults == 0 {
		errs = append(errs, errors.New("not one fault was done"))
	}
	if n := len(r.notDone); n > 1 && n*100 > notDoneMost*(n+s.Faults) {
		errs = append(errs, fmt.Errorf("%d of %d faults could not be brought about, more than %d %%: %s",
			n, n+s.Faults, notDoneMost, strings.Join(r.notDone, "; ")))
	}
	// A plan takes every kind once before it takes one again: after two rounds none may be missing.
	if s.Faults >= 2*len(r.kinds) {
		for _, k := range r.kinds {
			if s.Kinds[k] == 0 {
				errs = append(errs, fmt.Errorf("%s was never done, in %d faults of %d kinds", k, s.Faults, len(r.kinds)))
			}
		}
	}
	if n := len(r.notMended); n > 0 {
		errs = append(errs, fmt.Errorf("%d faults could not be mended: %s", n, strings.Join(r.notMended, "; ")))
	}
	return errors.Join(errs...)
}

// checkAlive says which processes ended although nobody had asked them to.
func (r *run) checkAlive() error {
	var errs []error
	for _, c := range r.crashed {
		errs = append(errs, errors.New(c))
	}
	return errors.Join(errs...)
}
