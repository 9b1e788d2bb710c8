package spool

import (
	"errors"

	"golang.org/x/sys/unix"
)

func isNotEmpty(err error) bool {
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)
}
