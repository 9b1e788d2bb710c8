package build

import (
	"context"

	"atoll/node/internal/image"
)

// StoreImages are those of a node's store, and what is pulled into it.
type StoreImages struct {
	Store *image.Store
	// PullReference pulls what a reference names, for others to be made of.
	PullReference func(ctx context.Context, reference string, emit func(Event)) (image.Image, error)
	// Limits bound the images that are made.
	Limits image.Limits
}

// Find returns an image that is here.
func (s StoreImages) Find(digest string) (image.Image, error) { return s.Store.Find(digest) }

// Pull returns the image that a reference names.
func (s StoreImages) Pull(ctx context.Context, reference string, emit func(Event)) (image.Image, error) {
	return s.PullReference(ctx, reference, emit)
}

// Assemble makes an image.
func (s StoreImages) Assemble(ctx context.Context, a Assembly) (image.Image, error) {
	r := image.Request{Name: a.Name, Origin: image.FromDockerfile, Source: a.Source, Base: a.Base, Config: a.Config, Bare: a.Bare, Limits: s.Limits}
	if a.Changes != nil {
		r.Layers = []image.Layer{{Reader: a.Changes, Overlay: true}}
	}
	return s.Store.Assemble(ctx, r)
}
