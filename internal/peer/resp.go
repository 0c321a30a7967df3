package peer

import (
	"bufio"
	"errors"
	"io"
	"strconv"
)

var errShape = errors.New("peer: not a RESP command")

// ReadCommand reads one command as clients send them: an array of strings.
func ReadCommand(r *bufio.Reader) ([]string, error) {
	n, err := readSize(r, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readSize(r, '$')
		if err != nil {
			return nil, err
		}
		if p, err := r.Peek(size + 2); err == nil {
			args[i] = string(p[:size])
			_, _ = r.Discard(size + 2)
			continue
		}
		long := make([]byte, size+2)
		if _, err := io.ReadFull(r, long); err != nil {
			return nil, err
		}
		args[i] = string(long[:size])
	}
	return args, nil
}

func readSize(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 4 || line[0] != kind {
		return 0, errShape
	}
	n := 0
	for _, c := range line[1 : len(line)-2] {
		if c < '0' || c > '9' || n > 1<<24 {
			return 0, errShape
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}

func bulk(out []byte, s string) []byte {
	out = append(out, '$')
	out = strconv.AppendInt(out, int64(len(s)), 10)
	out = append(out, "\r\n"...)
	out = append(out, s...)
	return append(out, "\r\n"...)
}

func number(out []byte, n int64) []byte { return header(out, ':', n) }

func array(out []byte, n int) []byte { return header(out, '*', int64(n)) }

func header(out []byte, kind byte, n int64) []byte {
	out = append(out, kind)
	out = strconv.AppendInt(out, n, 10)
	return append(out, "\r\n"...)
}

func failure(out []byte, text string) []byte {
	out = append(out, '-')
	out = append(out, text...)
	return append(out, "\r\n"...)
}

func nothing(out []byte) []byte { return append(out, "$-1\r\n"...) }
