#include "emulator/program/options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "emulator/driver_level.h"

namespace tranche::emulator {
namespace {

constexpr size_t kServerFileBytesMax = 64 << 10;

struct Verb {
  std::string_view name;
  std::string_view help;
};

constexpr std::string_view kProgramHelp =
    "tranche-emulator: a server with NVIDIA GPUs that are not there\n"
    "\n"
    "  tranche-emulator run --board h100-80:4 -- COMMAND   one command on a private server\n"
    "  tranche-emulator start --board rtx4090:2            a server for the whole machine\n"
    "  tranche-emulator status [--json]                    its GPUs, memory and processes\n"
    "  tranche-emulator stop                               removes it\n"
    "  tranche-emulator boards                             the boards to choose from\n"
    "  tranche-emulator fault xid 79 --gpu 2               something breaks, while programs run\n"
    "  tranche-emulator mig create 1g.10gb --gpu 0         cuts a GPU into MIG instances\n"
    "\n"
    "Each takes --help. Exit codes: 0 done, 1 failed, 2 not understood; run gives COMMAND's own.\n";

constexpr std::array<Verb, 8> kVerbs{{
    {"run",
     "tranche-emulator run --board BOARD[:COUNT]... [--server FILE] [--driver LEVEL] [--guest KIND]\n"
     "                     [--sharing WAY] -- COMMAND\n"
     "\n"
     "Runs COMMAND on an emulated server that only it and its children see: device nodes in a private /dev,\n"
     "libcuda.so.1 and libnvidia-ml.so.1 where every program finds them, state in a private /run. All is\n"
     "gone when the last of them ends. As an ordinary user it uses a user namespace, where device nodes\n"
     "cannot be made: /dev/null stands in for them.\n"
     "\n"
     "  tranche-emulator run --board h100-80:4 -- nvtop\n"
     "  tranche-emulator run --board t4 --board l40s:2 -- env CUDA_VISIBLE_DEVICES=1 ./program\n"},
    {"start",
     "tranche-emulator start --board BOARD[:COUNT]... [--server FILE] [--driver LEVEL] [--guest KIND]\n"
     "                       [--sharing WAY] [--name NAME]\n"
     "\n"
     "Makes the server's state (/run/tranche-emulator) and device nodes (/dev/nvidia*), and prints the "
     "folder\n"
     "of the two libraries: programs find them by LD_LIBRARY_PATH=FOLDER. Needs root; refuses beside a real\n"
     "NVIDIA driver and beside another emulated server. FILE has lines such as\n"
     "\"board = h100-80:4\", \"driver = 570\", \"name = lab-a\". A LEVEL is one of 470, 535, 550 (if nothing "
     "is\n"
     "said), 570, 580, 595, 615, 620, or a whole version such as 550.54.14. A KIND is\n"
     "none, passthrough, vgpu or vgpu-unlicensed. A WAY is slices (processes take turns, if nothing is "
     "said), "
     "mps\n"
     "(they run side by side and share faults, as clients of MPS), or mps@0,3 for GPUs 0 and 3 only.\n"
     "\n"
     "  tranche-emulator start --board a100-80:8\n"
     "  tranche-emulator start --server lab.server --driver 570\n"},
    {"stop",
     "tranche-emulator stop [--force]\n"
     "\n"
     "Removes every node and file that start made. Refuses while processes use the GPUs, unless --force.\n"
     "\n"
     "  tranche-emulator stop\n"
     "  tranche-emulator stop --force\n"},
    {"status",
     "tranche-emulator status [--json]\n"
     "\n"
     "Shows the GPUs with memory and utilisation, and the processes on them. Exit code 1 if there is no "
     "server.\n"
     "\n"
     "  tranche-emulator status\n"
     "  tranche-emulator status --json\n"},
    {"boards",
     "tranche-emulator boards [--json]\n"
     "\n"
     "Lists the boards that --board takes.\n"
     "\n"
     "  tranche-emulator boards\n"
     "  tranche-emulator run --board \"$(tranche-emulator boards | tail -1 | cut -d' ' -f1)\" -- "
     "nvidia-smi\n"},
    {"mig",
     "tranche-emulator mig on|off --gpu N\n"
     "tranche-emulator mig create PROFILE[@START] --gpu N\n"
     "tranche-emulator mig destroy all|UUID|ID --gpu N\n"
     "tranche-emulator mig list [--json]\n"
     "tranche-emulator mig profiles [--json]\n"
     "tranche-emulator mig reset --gpu N\n"
     "tranche-emulator mig reboot\n"
     "\n"
     "Does what `nvidia-smi mig` and a reset do on a real server. on and off take effect at once on an idle "
     "GPU\n"
     "without instances, otherwise at its next reset. create makes a GPU instance, at START or where the "
     "driver\n"
     "puts it, with one compute instance of its whole size, and prints the UUID; ID is that of a GPU "
     "instance.\n"
     "No instance survives a reset; over a reboot Ampere keeps the mode and later boards lose it.\n"
     "\n"
     "  tranche-emulator mig on --gpu 0\n"
     "  tranche-emulator mig create 3g.40gb@4 --gpu 0\n"
     "  CUDA_VISIBLE_DEVICES=MIG-... ./program\n"},
    {"reset",
     "tranche-emulator reset --gpu N\n"
     "\n"
     "Does what `nvidia-smi --gpu-reset` does: refuses while any process has the GPU's node open, NVML's "
     "clients\n"
     "among them, and names one. Otherwise the GPU is as after its start: an XID that asked for a reset, "
     "memory of\n"
     "ghosts, rows that wait to be remapped and counted errors are gone, and so are MIG instances. A GPU "
     "that\n"
     "fell off the bus, a row that cannot be remapped, heat and blocked calls stay (`fault clear`). Needs "
     "root.\n"
     "\n"
     "  tranche-emulator reset --gpu 2\n"},
    {"fault",
     "tranche-emulator fault KIND [VALUE] [--gpu N]...\n"
     "tranche-emulator fault list [--json]\n"
     "tranche-emulator fault clear [--gpu N]...\n"
     "\n"
     "Breaks something on the server that stands, at once and for all programs that run on it. clear puts "
     "it\n"
     "right, as a reset, a reboot or a visit to the workshop would: all of it, or what is wrong with GPU N.\n"
     "\n"
     "  xid CODE [--pid P | --instance GI]\n"
     "                         an XID event with its consequences for the contexts on the GPU: those of\n"
     "                         process P, of a GPU instance, or of every process there, where the code is "
     "an\n"
     "                         application's error\n"
     "  lost                   fallen off the bus: XID 79\n"
     "  nvml-block [--for 60s] NVML calls about the GPU do not return; without --gpu no NVML call does\n"
     "  driver-mismatch        library and kernel module differ, as after an update without a reboot\n"
     "  thermal [--software]   clocks are lowered because of heat, by the board or by the driver\n"
     "  power [--brake]        clocks are lowered at the power limit, or by the external power brake\n"
     "  ecc-corrected COUNT, ecc-uncorrected COUNT\n"
     "                         memory errors are counted (what they do to programs: xid 48, 94, 95)\n"
     "  row-remap pending|failure\n"
     "                         a row of memory waits for a reset to be remapped, or cannot be\n"
     "  ghost-memory [SIZE]    SIZE of memory is in use by nobody; without SIZE, that of the next process\n"
     "                         that ends on the GPU stays\n"
     "  ghost-process          the next process that ends there stays in NVML's list, with its memory\n"
     "  unkillable --pid P     process P does not end, not even by SIGKILL (root; a version 1 freezer "
     "cgroup)\n"
     "  slow-copy RATE         copies move at most RATE bytes a second: 50M\n"
     "  checkpoint STATE       cuCheckpointProcess* fails on the way to STATE: locked, checkpointed, "
     "restored\n"
     "                         (back to locked) or running\n"
     "  no-uvm                 /dev/nvidia-uvm and its tools are gone (root)\n"
     "  minor NUMBER           the GPU's node is /dev/nvidiaNUMBER from now on (root)\n"
     "\n"
     "  tranche-emulator fault xid 31 --gpu 0 --pid 4711\n"
     "  tranche-emulator fault nvml-block --gpu 3 --for 60s\n"
     "  tranche-emulator fault clear --gpu 3\n"},
}};

const Verb* find_verb(std::string_view name) {
  const auto found =
      std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& v) { return v.name == name; });
  return found == kVerbs.end() ? nullptr : found;
}

Error usage_error(const std::string& message, std::string_view verb) {
  const std::string hint =
      verb.empty() ? "tranche-emulator --help" : "tranche-emulator " + std::string(verb) + " --help";
  return Error(ErrorCode::invalid_argument, message + " (see " + hint + ")");
}

Result<std::string> read_server_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return fail(ErrorCode::invalid_argument, "cannot open " + path + ": " + std::strerror(errno));
  std::string text(kServerFileBytesMax + 1, '\0');
  const ssize_t length = read(file, text.data(), text.size());
  close(file);
  if (length < 0)
    return fail(ErrorCode::invalid_argument, "cannot read " + path + ": " + std::strerror(errno));
  if (static_cast<size_t>(length) > kServerFileBytesMax) {
    return fail(ErrorCode::invalid_argument, path + " is longer than 64 KiB, so no server description");
  }
  text.resize(static_cast<size_t>(length));
  return text;
}

Result<void> apply_server_file(const std::string& path, ServerDescription& server) {
  TRY_ASSIGN(const std::string text, read_server_file(path));
  auto described = parse_server_description(text);
  if (!described) return fail(std::move(described).error().with_context(path));
  described->gpus.insert(described->gpus.begin(), server.gpus.begin(), server.gpus.end());
  server = std::move(*described);
  return {};
}

Result<void> apply_option(const std::string& name, const std::string& value, ServerDescription& server) {
  if (name == "--board") return add_boards(value, server);
  if (name == "--server") return apply_server_file(value, server);
  if (name == "--guest") return set_guest(value, server);
  if (name == "--sharing") return set_sharing(value, server);
  if (name == "--driver" || name == "--driver-version") {
    TRY_ASSIGN(server.driver_version, driver_version_of(value));
    return {};
  }
  if (value.empty() || value.size() > 63) {
    return fail(ErrorCode::invalid_argument, "a server name has 1 to 63 characters");
  }
  server.name = value;
  return {};
}

bool takes_server(std::string_view verb) { return verb == "run" || verb == "start"; }

bool takes_value(std::string_view verb, std::string_view name) {
  return takes_server(verb) &&
         (name == "--board" || name == "--server" || name == "--driver" || name == "--driver-version" ||
          name == "--guest" || name == "--sharing" || (name == "--name" && verb == "start"));
}

// "--name=value" as two.
std::pair<std::string, std::optional<std::string>> split_option(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return {argument, std::nullopt};
  return {argument.substr(0, equals), argument.substr(equals + 1)};
}

Result<void> parse_verb_options(const std::vector<std::string>& arguments, Options& options) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    auto [name, value] = split_option(arguments[i]);
    if (name == "--help" || name == "-h") {
      options.help = true;
    } else if (name == "--json" && !value && (options.verb == "status" || options.verb == "boards")) {
      options.json = true;
    } else if (name == "--force" && !value && options.verb == "stop") {
      options.force = true;
    } else if (name == "--" && options.verb == "run") {
      options.command.assign(arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end());
      break;
    } else if (takes_value(options.verb, name)) {
      if (!value && i + 1 == arguments.size())
        return fail(usage_error(name + " needs a value", options.verb));
      if (!value) value = arguments[++i];
      TRY(apply_option(name, *value, options.server));
    } else {
      return fail(usage_error("\"" + arguments[i] + "\" is not understood", options.verb));
    }
  }
  return {};
}

}  // namespace

std::string_view help_text(std::string_view verb) {
  const Verb* const found = find_verb(verb);
  return found == nullptr ? kProgramHelp : found->help;
}

Result<Options> parse_options(const std::vector<std::string>& arguments) {
  Options options;
  if (arguments.empty()) return fail(usage_error("say what to do", ""));
  options.verb = arguments[0];
  if (options.verb == "--help" || options.verb == "-h" || options.verb == "help") {
    options.help = true;
    return options;
  }
  if (find_verb(options.verb) == nullptr) {
    return fail(usage_error("\"" + options.verb + "\" is not a verb of tranche-emulator", ""));
  }
  if (options.verb == "fault" || options.verb == "mig" || options.verb == "reset") {
    options.command.assign(arguments.begin() + 1, arguments.end());
    options.help = options.command.empty() ||
                   std::any_of(options.command.begin(), options.command.end(),
                               [](const std::string& word) { return word == "--help" || word == "-h"; });
    return options;
  }
  TRY(parse_verb_options(arguments, options));
  if (options.help) return options;
  if (takes_server(options.verb) && options.server.gpus.empty()) {
    return fail(usage_error("say which GPUs: --board h100-80:4, or --server FILE", options.verb));
  }
  if (options.verb == "run" && options.command.empty()) {
    return fail(usage_error("say what to run, after --", options.verb));
  }
  return options;
}

}  // namespace tranche::emulator
