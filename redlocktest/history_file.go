package redlocktest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// historyFile is a file that a history is appended to, one JSON object per line.
// Each line is one write to a file opened with O_APPEND, which Linux does not
// mix with those of other processes, so they need no lock between them.
type historyFile struct {
	path string   // set by OpenHistory, then read-only
	out  *os.File // the same

	mu  sync.Mutex // guards err
	err error      // the first write that failed
}

// OpenHistory appends to the file at path and makes it if it is missing. Several
// processes of one machine may record in one file at the same time, each through
// a History of its own; a process that is killed loses nothing that it recorded,
// as every [History.Add] is one write. The caller closes it.
func OpenHistory(path string, opts ...HistoryOption) (*History, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("redlocktest: opening a history: %w", err)
	}
	h := NewHistory(opts...)
	h.file = &historyFile{path: path, out: out}
	return h, nil
}

// ReadHistory reads files that were recorded on one machine into one history in
// memory. A line that was cut off because its writer was killed is left out and
// counted, see [History.Torn]; any other line that is no record is an error.
func ReadHistory(paths ...string) (*History, error) {
	h := NewHistory()
	for _, path := range paths {
		if err := h.readFile(path); err != nil {
			return nil, fmt.Errorf("redlocktest: reading a history: %w", err)
		}
	}
	return h, nil
}

// Close closes the file; it does nothing for a history in memory. The error is
// that of the first record that could not be written.
func (h *History) Close() error {
	if h.file == nil {
		return nil
	}
	err := h.file.out.Close()
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	return errors.Join(h.file.err, err)
}

func (f *historyFile) append(r Record) {
	line, err := json.Marshal(r)
	if err == nil {
		_, err = f.out.Write(append(line, '\n'))
	}
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = fmt.Errorf("redlocktest: recording: %w", err)
	}
}

// read is the file as it is now.
func (f *historyFile) read() (*History, error) {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return ReadHistory(f.path)
}

// readFile adds the records of a file to h, which nobody else knows yet.
func (h *History) readFile(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	lines := bufio.NewReaderSize(in, 1<<20)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := h.readLine(line); err != nil {
				return fmt.Errorf("%s, line %d: %w", path, number, err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine adds one line. Where a writer was killed in the middle of one, the
// line has no end, or the next writer's begins in the middle of it: no record
// has this within, for quotes inside of strings are escaped.
func (h *History) readLine(line []byte) error {
	begin := max(0, bytes.LastIndex(line, []byte(`{"at":`)))
	if begin > 0 {
		h.torn++
	}
	var r Record
	if err := json.Unmarshal(line[begin:], &r); err != nil {
		if line[len(line)-1] == '\n' {
			return err
		}
		h.torn++
		return nil
	}
	h.records = append(h.records, r)
	return nil
}
