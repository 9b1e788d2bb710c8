package frame

func childMain(mode string) {}
