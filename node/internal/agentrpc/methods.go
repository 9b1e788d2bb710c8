// Package agentrpc names the calls of atoll.agent.v1.Agent as they appear on the frame layer, for the agent that serves them and the
// engine that makes them.
package agentrpc

// Each is the rpc's full protobuf name.
const (
	Hello          = "atoll.agent.v1.Agent.Hello"
	OpenContext    = "atoll.agent.v1.Agent.OpenContext"
	RestartContext = "atoll.agent.v1.Agent.RestartContext"
	CloseContext   = "atoll.agent.v1.Agent.CloseContext"
	Execute        = "atoll.agent.v1.Agent.Execute"
	Interrupt      = "atoll.agent.v1.Agent.Interrupt"
	Watch          = "atoll.agent.v1.Agent.Watch"

	WriteInput         = "atoll.agent.v1.Agent.WriteInput"
	Signal             = "atoll.agent.v1.Agent.Signal"
	Resize             = "atoll.agent.v1.Agent.Resize"
	ListProcesses      = "atoll.agent.v1.Agent.ListProcesses"
	ListGuestProcesses = "atoll.agent.v1.Agent.ListGuestProcesses"

	File       = "atoll.agent.v1.Agent.File"
	ReadFile   = "atoll.agent.v1.Agent.ReadFile"
	WriteFile  = "atoll.agent.v1.Agent.WriteFile"
	WatchFiles = "atoll.agent.v1.Agent.WatchFiles"

	ListPorts = "atoll.agent.v1.Agent.ListPorts"
	Tunnel    = "atoll.agent.v1.Agent.Tunnel"

	ListenOutward = "atoll.agent.v1.Agent.ListenOutward"
	Outward       = "atoll.agent.v1.Agent.Outward"

	Mount   = "atoll.agent.v1.Agent.Mount"
	Unmount = "atoll.agent.v1.Agent.Unmount"
)
