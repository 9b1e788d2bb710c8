package engine

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"atoll/node/gen/enginev1"
)

// MakeImage makes an image of a source that the first message names.
func (s *Service) MakeImage(grpc.BidiStreamingServer[enginev1.MakeImageRequest, enginev1.MakeImageEvent]) error {
	return status.Error(codes.Unimplemented, "images are made by ./atoll up alone")
}

// DeleteImage removes an image that nothing needs.
func (s *Service) DeleteImage(context.Context, *enginev1.ImageRequest) (*enginev1.DeleteImageReply, error) {
	return nil, status.Error(codes.Unimplemented, "images are removed by hand")
}

// PruneImages removes what nothing needs.
func (s *Service) PruneImages(context.Context, *enginev1.PruneImagesRequest) (*enginev1.PruneImagesReply, error) {
	return nil, status.Error(codes.Unimplemented, "images are removed by hand")
}
