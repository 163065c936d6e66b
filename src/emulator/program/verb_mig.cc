#include "emulator/program/verb_mig.h"

#include <cstdio>
#include <optional>

#include "emulator/device_model.h"
#include "emulator/mig_nodes.h"
#include "emulator/program/fault_words.h"

namespace tranche::emulator {
namespace {

constexpr const char* kMigDevices = "/dev";

struct Order {
  std::vector<std::string> words;  // without options
  uint32_t gpu = 0;
  bool has_gpu = false, json = false;
};

tl::unexpected<Error> mig_not_understood(const std::string& message) {
  return fail(ErrorCode::invalid_argument, message + " (see tranche-emulator mig --help)");
}

Result<uint32_t> mig_number(const std::string& text, uint32_t most, const std::string& what) {
  const auto number = parse_fault_number(text, most, what);
  if (number) return static_cast<uint32_t>(*number);
  return mig_not_understood(what + " is a number up to " + std::to_string(most) + ", not \"" + text + "\"");
}

Result<Order> parse(const std::vector<std::string>& words) {
  Order order;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      order.json = true;
    } else if (words[i] == "--gpu") {
      if (i + 1 == words.size()) return mig_not_understood("--gpu needs a number");
      TRY_ASSIGN(order.gpu, mig_number(words[++i], kMaxGpus - 1, "--gpu"));
      order.has_gpu = true;
    } else if (words[i].starts_with("-")) {
      return mig_not_understood("\"" + words[i] + "\" is not understood");
    } else {
      order.words.push_back(words[i]);
    }
  }
  if (order.words.empty()) return mig_not_understood("say what to do");
  return order;
}

Result<void> report(MigResult result, const std::string& what) {
  switch (result) {
    case MigResult::done:
      return {};
    case MigResult::not_supported:
      return fail(ErrorCode::invalid_argument, what + ": the board cannot do that, or MIG mode is off");
    case MigResult::invalid:
      return mig_not_understood(what + ": there is no such profile or start");
    case MigResult::not_found:
      return fail(ErrorCode::not_found, what + ": there is no such instance");
    case MigResult::no_room:
      return fail(ErrorCode::conflict,
                  what + ": it collides with what is there, or the board allows no more");
    case MigResult::in_use:
      return fail(ErrorCode::conflict, what + ": it is in use, or has instances in it");
  }
  return {};
}

std::string placements(uint32_t starts, uint32_t length) {
  std::string text;
  for (uint32_t start = 0; start < 32; ++start) {
    if ((starts >> start & 1u) == 0) continue;
    text += (text.empty() ? "\"" : ", \"") + std::to_string(start) + ":" + std::to_string(length) + "\"";
  }
  return "[" + text + "]";
}

std::string compute_profiles_json(const MigBoard& board, const GpuInstanceProfile& profile) {
  std::string text;
  for (uint32_t query = 0; query < kComputeInstanceQueries; ++query) {
    ComputeInstanceProfile compute{};
    if (!compute_profile(board, profile, query, compute)) continue;
    text += (text.empty() ? "" : ", ") + std::string("{\"id\": ") + std::to_string(compute.id) +
            ", \"slices\": " + std::to_string(compute.slices) +
            ", \"most\": " + std::to_string(compute.most) +
            ", \"multiprocessors\": " + std::to_string(compute.multiprocessors) +
            ", \"placements\": " + placements(compute.starts, compute.slices) + "}";
  }
  return "[" + text + "]";
}

std::string profile_json(const MigBoard& board, const GpuInstanceProfile& profile) {
  const auto number = [](const char* name, uint32_t value) {
    return std::string(", \"") + name + "\": " + std::to_string(value);
  };
  return "{\"name\": \"" + profile_name(board, profile) + "\"" + number("id", profile.id) +
         number("query", profile.query) + number("slices", profile.slices) + number("units", profile.units) +
         number("most", profile.most) + number("memory_mib", profile.memory_mib) +
         number("multiprocessors", profile.multiprocessors) + number("copy_engines", profile.copy_engines) +
         number("decoders", profile.decoders) + number("encoders", profile.encoders) +
         number("jpeg", profile.jpeg) + number("optical_flow", profile.optical_flow) +
         ", \"placements\": " + placements(profile.starts, profile.units) +
         ", \"compute_instances\": " + compute_profiles_json(board, profile) + "}";
}

void print_profiles(bool json) {
  std::string text;
  for (const Board& board : boards()) {
    const MigBoard* const mig = mig_board(board.key);
    if (mig == nullptr) continue;
    std::string profiles;
    for (const GpuInstanceProfile& profile : mig->profiles) {
      if (!json) {
        std::printf("%-9s %-11s id %2u  %6u MiB %4u SM  %u at most\n", std::string(board.key).c_str(),
                    profile_name(*mig, profile).c_str(), profile.id, profile.memory_mib,
                    profile.multiprocessors, profile.most);
      }
      profiles += (profiles.empty() ? "" : ",\n    ") + profile_json(*mig, profile);
    }
    text += (text.empty() ? "" : ",\n  ") + std::string("\"") + std::string(board.key) +
            "\": {\"units\": " + std::to_string(mig->units) +
            ", \"mode_survives_reboot\": " + (mig->mode_survives_reboot ? "true" : "false") +
            ", \"profiles\": [\n    " + profiles + "]}";
  }
  if (json) std::printf("{\n  %s\n}\n", text.c_str());
}

void print_devices(DeviceModel& model, bool json) {
  std::string text;
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) {
    if (!json && model.mig(gpu) != nullptr) {
      std::printf("GPU %u  MIG mode %s%s\n", gpu, model.mig_enabled(gpu) ? "on" : "off",
                  model.mig_enabled(gpu) != model.mig_pending(gpu) ? ", changes at the next reset" : "");
    }
    for (const MigDeviceInfo& device : model.mig_devices(gpu)) {
      const unsigned long long used = model.used_bytes(gpu, device.gpu_instance);
      if (!json) {
        std::printf("GPU %u  GI %2u  CI %u  %-14s %8llu /%7llu MiB  %3u SM  %s\n", gpu, device.gpu_instance,
                    device.compute_instance, device.name.c_str(), used >> 20,
                    static_cast<unsigned long long>(device.memory_bytes >> 20), device.multiprocessors,
                    device.uuid_text.c_str());
      }
      text += (text.empty() ? "" : ", ") + std::string("{\"gpu\": ") + std::to_string(gpu) +
              ", \"gpu_instance\": " + std::to_string(device.gpu_instance) +
              ", \"compute_instance\": " + std::to_string(device.compute_instance) + ", \"name\": \"" +
              device.name + "\", \"uuid\": \"" + device.uuid_text +
              "\", \"memory_bytes\": " + std::to_string(device.memory_bytes) +
              ", \"used_bytes\": " + std::to_string(used) +
              ", \"busy_ns\": " + std::to_string(model.instance_busy_ns(device)) + "}";
    }
  }
  if (json) std::printf("[%s]\n", text.c_str());
}

// "3g.20gb", "3g.20gb@4" or the profile's id.
Result<void> create(DeviceModel& model, uint32_t gpu, std::string wanted) {
  const MigBoard* const board = model.mig(gpu);
  if (board == nullptr) return report(MigResult::not_supported, wanted);
  std::optional<uint32_t> start;
  const size_t at = wanted.find('@');
  if (at != std::string::npos) {
    TRY_ASSIGN(start, mig_number(wanted.substr(at + 1), 31, "a start"));
    wanted.resize(at);
  }
  for (const GpuInstanceProfile& profile : board->profiles) {
    if (profile_name(*board, profile) != wanted && std::to_string(profile.id) != wanted) continue;
    uint32_t instance = 0, compute = 0, query = 0;
    TRY(report(model.create_gpu_instance(gpu, profile.id, start, instance), wanted));
    ComputeInstanceProfile whole{};
    while (!compute_profile(*board, profile, query, whole) || whole.slices != profile.slices) ++query;
    TRY(report(model.create_compute_instance(gpu, instance, query, {}, compute), wanted));
    if (auto nodes = refresh_mig_nodes(model, kMigDevices); !nodes) {
      // Without its nodes nobody could use it.
      model.destroy_compute_instance(gpu, instance, compute);
      model.destroy_gpu_instance(gpu, instance);
      return nodes;
    }
    for (const MigDeviceInfo& device : model.mig_devices(gpu)) {
      if (device.gpu_instance == instance) std::printf("%s\n", device.uuid_text.c_str());
    }
    return {};
  }
  return mig_not_understood("\"" + wanted + "\" is no profile of this board");
}

Result<void> destroy(DeviceModel& model, uint32_t gpu, const std::string& word) {
  bool found = word == "all";  // that nothing is left is what was wanted
  for (const MigDeviceInfo& device : model.mig_devices(gpu)) {
    const bool meant =
        word == "all" || word == device.uuid_text || word == std::to_string(device.gpu_instance);
    if (!meant) continue;
    found = true;
    TRY(report(model.destroy_compute_instance(gpu, device.gpu_instance, device.compute_instance),
               device.uuid_text));
    const MigResult gone = model.destroy_gpu_instance(gpu, device.gpu_instance);
    if (gone != MigResult::in_use) TRY(report(gone, device.uuid_text));  // other compute instances keep it
  }
  if (!found) return report(MigResult::not_found, "\"" + word + "\"");
  return refresh_mig_nodes(model, kMigDevices);
}

// No program survives a reboot, and this one ends none.
Result<void> reboot(DeviceModel& model) {
  for (uint32_t gpu = 0; gpu < model.gpu_count(); ++gpu) {
    for (const ProcessReading& process : model.processes(gpu)) {
      if (process.contexts == 0) continue;  // a ghost, which a reboot drives out
      return fail(ErrorCode::conflict, "process " + std::to_string(process.pid) + " uses GPU " +
                                           std::to_string(gpu) + ": end it first");
    }
  }
  model.reboot();
  return refresh_mig_nodes(model, kMigDevices);
}

bool is_verb_of_a_gpu(const std::string& verb) {
  return verb == "on" || verb == "off" || verb == "create" || verb == "destroy" || verb == "reset";
}

}  // namespace

Result<void> run_mig(const std::vector<std::string>& words) {
  TRY_ASSIGN(const Order order, parse(words));
  const std::string& verb = order.words[0];
  const std::string value = order.words.size() > 1 ? order.words[1] : "";
  if (verb == "profiles") {
    print_profiles(order.json);
    return {};
  }
  auto attached = DeviceModel::attach(default_state_directory());
  if (!attached) {
    return fail(ErrorCode::not_found, "there is no emulated server here (" + attached.error().message() +
                                          "); make one with tranche-emulator start");
  }
  DeviceModel& model = **attached;
  if (verb == "list") {
    print_devices(model, order.json);
    return {};
  }
  if (verb == "reboot") return reboot(model);
  if (!is_verb_of_a_gpu(verb)) return mig_not_understood("\"" + verb + "\" is not known");
  if (!order.has_gpu) return mig_not_understood("say which GPU: --gpu N");
  if (order.gpu >= model.gpu_count())
    return mig_not_understood("the server has no GPU " + std::to_string(order.gpu));
  if (verb == "on" || verb == "off") {
    return report(model.set_mig_mode(order.gpu, verb == "on"), "MIG mode waits for a reset");
  }
  if (verb == "create") return create(model, order.gpu, value);
  if (verb == "destroy") return destroy(model, order.gpu, value);
  TRY(report(model.reset_gpu(order.gpu), "GPU " + std::to_string(order.gpu)));
  return refresh_mig_nodes(model, kMigDevices);
}

}  // namespace tranche::emulator
