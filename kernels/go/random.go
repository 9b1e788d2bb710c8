package main

import (
	crand "crypto/rand"
	"crypto/sha256"
	"math/rand"
	randv2 "math/rand/v2"
	"reflect"
	"sync"
)

// random is where the functions of math/rand and math/rand/v2 draw from in cells. The generator of Go's own runtime lies in memory, and
// cannot be seeded anew: two sandboxes that were made from one snapshot would draw the same numbers.
type random struct {
	mu     sync.Mutex
	source *randv2.ChaCha8 // guarded by mu
	seeded rand.Source64   // by rand.Seed; until the next reseed; guarded by mu
}

func newRandom() *random {
	r := &random{}
	r.reseed("")
	return r
}

// reseed takes fresh randomness from the system, and the seed too where there is one.
func (r *random) reseed(seed string) {
	var fresh [32]byte
	if _, err := crand.Read(fresh[:]); err != nil {
		panic(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.source = randv2.NewChaCha8(sha256.Sum256(append(fresh[:], seed...)))
	r.seeded = nil
}

func (r *random) Uint64() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seeded != nil {
		return r.seeded.Uint64()
	}
	return r.source.Uint64()
}

func (r *random) Int63() int64 { return int64(r.Uint64() >> 1) }

func (r *random) Seed(seed int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeded = rand.NewSource(seed).(rand.Source64)
}

func (r *random) symbols() map[string]reflect.Value {
	generator := rand.New(r)
	// rand.Rand.Read keeps bytes between calls, and so is not for several goroutines.
	var reading sync.Mutex
	symbols := methods(generator, "ExpFloat64", "Float32", "Float64", "Int", "Int31", "Int31n", "Int63", "Int63n", "Intn", "NormFloat64", "Perm", "Shuffle", "Uint32", "Uint64")
	symbols["Seed"] = reflect.ValueOf(r.Seed)
	symbols["Read"] = reflect.ValueOf(func(p []byte) (int, error) {
		reading.Lock()
		defer reading.Unlock()
		return generator.Read(p)
	})
	return symbols
}

func (r *random) symbolsV2() map[string]reflect.Value {
	return methods(randv2.New(r), "ExpFloat64", "Float32", "Float64", "Int", "Int32", "Int32N", "Int64", "Int64N", "IntN", "NormFloat64", "Perm", "Shuffle", "Uint32", "Uint32N", "Uint64", "Uint64N")
}

func methods(of any, names ...string) map[string]reflect.Value {
	symbols := map[string]reflect.Value{}
	for _, name := range names {
		symbols[name] = reflect.ValueOf(of).MethodByName(name)
	}
	return symbols
}
