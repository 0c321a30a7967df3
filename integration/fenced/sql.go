package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Schema is what Accounts needs: a fence in each row that a lock protects. What hangs on such a row, as entries do, has
// no fence of its own; it is written in one transaction with the check of its account's. Fences fit a BIGINT.
const Schema = `
CREATE TABLE IF NOT EXISTS account (
	id    TEXT PRIMARY KEY,
	cents BIGINT NOT NULL,
	fence BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS entry (
	id      TEXT PRIMARY KEY, -- the payment's own key: it is what stops a repeated payment, not the fence
	account TEXT NOT NULL REFERENCES account (id),
	cents   BIGINT NOT NULL
);`

// Accounts is a ledger whose accounts are protected by locks, one resource for each. The statements are SQLite's, on
// which they are tested, and with $1 for ? PostgreSQL's, at any isolation level: there a serialization failure is neither
// a yes nor a no, and the transaction is to be repeated with the same fence.
//
// MySQL has another upsert, and counts only rows that it changed: without clientFoundRows=true in the driver's DSN, an
// UPDATE that changes nothing looks refused.
type Accounts struct{ DB *sql.DB }

// Claim makes fence the lowest that may write the account from now on, and returns its balance; a missing account is
// made. It is the first thing to do with a new lock. ErrStale if a later owner was here.
func (a Accounts) Claim(ctx context.Context, id string, fence uint64) (cents int64, err error) {
	if err := checkFence(fence); err != nil {
		return 0, err
	}
	// Of two owners that both find no row, the second meets the first's: the conflict is where the fences are compared.
	err = a.DB.QueryRowContext(ctx, `
		INSERT INTO account (id, cents, fence) VALUES (?, 0, ?)
		ON CONFLICT (id) DO UPDATE SET fence = excluded.fence WHERE account.fence <= excluded.fence
		RETURNING cents`, id, int64(fence)).Scan(&cents)
	switch {
	case errors.Is(err, sql.ErrNoRows): // neither inserted nor updated
		return 0, fmt.Errorf("%w: account %s, fence %d", ErrStale, id, fence)
	case err != nil:
		return 0, fmt.Errorf("fenced: claim of account %s: %w", id, err)
	}
	return cents, nil
}

// SetBalance is the plain case, one row. Equal fences pass: one owner may write many times.
func (a Accounts) SetBalance(ctx context.Context, id string, fence uint64, cents int64) error {
	if err := checkFence(fence); err != nil {
		return err
	}
	return updated(id, fence)(a.DB.ExecContext(ctx,
		`UPDATE account SET cents = ?, fence = ? WHERE id = ? AND fence <= ?`,
		cents, int64(fence), id, int64(fence)))
}

// Post books a payment: a new row, which has no older fence to be compared with. So the account's row is updated first,
// which checks the fence and keeps every other writer of the account out until the end of the transaction. (A mere
// SELECT of the fence does not: a later owner may come between it and the INSERT.)
func (a Accounts) Post(ctx context.Context, id string, fence uint64, payment string, cents int64) error {
	if err := checkFence(fence); err != nil {
		return err
	}
	tx, err := a.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fenced: account %s: %w", id, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit

	err = updated(id, fence)(tx.ExecContext(ctx,
		`UPDATE account SET cents = cents + ?, fence = ? WHERE id = ? AND fence <= ?`,
		cents, int64(fence), id, int64(fence)))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO entry (id, account, cents) VALUES (?, ?, ?)`, payment, id, cents)
	if err != nil {
		return fmt.Errorf("fenced: payment %s: %w", payment, err)
	}
	if err := tx.Commit(); err != nil { // it may have been booked: look for the payment before trying again
		return fmt.Errorf("fenced: payment %s: %w", payment, err)
	}
	return nil
}

// updated reads the outcome of a conditional UPDATE. No row means refused: the claim has made it, and if somebody has
// deleted it since, its fence is gone and nobody can tell.
func updated(id string, fence uint64) func(sql.Result, error) error {
	return func(result sql.Result, err error) error {
		rows := int64(0)
		if err == nil {
			rows, err = result.RowsAffected()
		}
		switch {
		case err != nil:
			return fmt.Errorf("fenced: account %s: %w", id, err)
		case rows == 0:
			return fmt.Errorf("%w: account %s, fence %d", ErrStale, id, fence)
		}
		return nil
	}
}
