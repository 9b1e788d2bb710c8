// Package patience stretches the time limits of tests on machines that are slow by nature, such as an emulated one.
package patience

import (
	"os"
	"strconv"
	"time"
)

// Variable holds the factor, a number from 1 on.
const Variable = "ATOLL_TEST_PATIENCE"

// Of is the limit times the factor.
func Of(limit time.Duration) time.Duration {
	text := os.Getenv(Variable)
	if text == "" {
		return limit
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || factor < 1 {
		panic(Variable + "=" + text + " (expected: a number from 1 on)")
	}
	return time.Duration(float64(limit) * factor)
}
