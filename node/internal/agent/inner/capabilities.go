package inner

// UserCapability says whether a process of the user, root's included, may have a capability.
func UserCapability(capability int) bool { return userCapabilities[capability] }
