# libnvidia-ml.so.1 over the device model: one file a subject.
set(EMULATOR_NVML_SOURCES
  nvml/accounting.cc nvml/activity.cc nvml/board_detail.cc nvml/board_parts.cc nvml/error_text.cc nvml/events.cc nvml/fields.cc nvml/gpm.cc nvml/identity.cc
  nvml/link.cc nvml/memory.cc nvml/memory_limits.cc nvml/mig.cc nvml/mig_handles.cc nvml/mig_instances.cc nvml/modes.cc nvml/newer_forms.cc nvml/defaults.cc nvml/nvlink.cc
  nvml/processes.cc nvml/sensors.cc nvml/session.cc nvml/system.cc nvml/throttling.cc nvml/topology.cc nvml/virtualisation.cc)
