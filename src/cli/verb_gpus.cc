// tranche gpus: every GPU, what it holds and how it does; and an operator's drain and undrain.
#include "base/quantity_text.h"
#include "cli/arguments.h"
#include "cli/daemon.h"
#include "cli/job_text.h"
#include "cli/option_error.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "cli/verbs.h"

namespace tranche::cli {
namespace {

std::string optional_text(bool known, const std::string& text) { return known ? text : "?"; }

Duration whole_seconds(Duration time) { return Duration(time.count() / kSecond.count() * kSecond.count()); }

std::string health_text(const api::GpuStatus& gpu) {
  std::string text = gpu.drained ? "drained" : std::string(to_string(gpu.health));
  if (gpu.drained && gpu.health != Health::ok) text += ", " + std::string(to_string(gpu.health));
  return text;
}

Style health_style(const api::GpuStatus& gpu) {
  if (gpu.health == Health::failed || gpu.health == Health::lost) return Style::kRed;
  return gpu.drained || gpu.health == Health::degraded ? Style::kYellow : Style::kGreen;
}

std::string memory_text(const api::GpuStatus& gpu) {
  return optional_text(gpu.memory_used.has_value(), format_memory(gpu.memory_used.value_or(MiB(0)))) + "/" +
         format_memory(gpu.memory_total);
}

std::string free_text(const api::GpuStatus& gpu) {
  const bool is_closed = gpu.drained || gpu.health == Health::failed || gpu.health == Health::lost;
  if (is_closed || gpu.compute_free.count() == 0) return "-";
  if (gpu.compute_free == kWholeGpu) return "all";
  return format_thousandths(gpu.compute_free.count()) + " " + format_memory(gpu.memory_free_for_slices);
}

// "7 ada whole, 9 bob 0.5 unenforced (unmanaged: eve 1G)"
std::string holders_text(const api::GpuStatus& gpu) {
  std::string text;
  for (const api::SliceRow& slice : gpu.slices) {
    const std::string job = slice.display.empty() ? std::to_string(slice.job.value()) : slice.display;
    text += (text.empty() ? "" : ", ") + job + " " + slice.user + " " + slice_text(slice);
  }
  // Who uses a GPU without asking is named: the others wait because of it.
  for (const api::GpuProcess& process : gpu.processes) {
    if (process.job) continue;
    text += (text.empty() ? "" : ", ") + std::string("unmanaged: ") + process.user + " pid " +
            std::to_string(process.pid);
    if (process.memory) text += " " + format_memory(*process.memory);
  }
  return text;
}

// What is longer than a cell: why it is closed, what its programs did, how it is cut up. Each a line below
// the table, so that a narrow terminal cuts none of it.
std::string notes_text(const api::GpuStatus& gpu) {
  const std::string name = "GPU " + std::to_string(gpu.index) + ": ";
  std::string notes;
  if (!gpu.reason.empty()) notes += name + printable(gpu.reason) + "\n";
  // Health names the GPU's own error already; a program's is told while it is fresh.
  constexpr Duration kFresh = kHour;
  if (!gpu.faults.empty() && gpu.faults.back().of_the_job && gpu.faults.back().age < kFresh) {
    const api::GpuFault& fault = gpu.faults.back();
    std::string jobs;
    for (size_t i = 0; i < fault.jobs.size(); ++i) {
      const std::string job =
          i < fault.displays.size() ? printable(fault.displays[i]) : std::to_string(fault.jobs[i].value());
      jobs += (jobs.empty() ? " (on it then: job " : ", ") + job;
    }
    notes += name + printable(fault.text) + jobs + (jobs.empty() ? "" : ")") + ", " +
             format_duration(whole_seconds(fault.age)) + " ago\n";
  }
  if (gpu.let_go) notes += name + "let go: it can be reset now\n";
  if (gpu.whole_only) notes += name + "virtual, given whole only\n";
  for (const api::MigDeviceRow& device : gpu.mig_devices) {
    notes += name + "mig " + std::to_string(device.gpu_instance) + "/" +
             std::to_string(device.compute_instance) + ", " + format_memory(device.memory) + ", " +
             std::to_string(device.multiprocessors) + " SM, " + printable(device.uuid) + "\n";
  }
  return notes;
}

std::string link_text(const api::GpuStatus& gpu, uint32_t peer) {
  if (gpu.index == peer) return "-";
  for (const api::GpuPeer& link : gpu.links) {
    if (link.peer == peer) return std::string(to_string(link.kind));
  }
  return "?";
}

Table topology_table(const std::vector<api::GpuStatus>& gpus) {
  std::vector<Table::Column> columns{{.title = "GPU", .right = true}};
  for (const api::GpuStatus& gpu : gpus) columns.push_back({.title = "GPU " + std::to_string(gpu.index)});
  columns.push_back({.title = "NUMA", .right = true});
  columns.push_back({.title = "PROCESSORS"});
  Table table(std::move(columns));
  for (const api::GpuStatus& gpu : gpus) {
    std::vector<Table::Cell> cells{{std::to_string(gpu.index)}};
    for (const api::GpuStatus& peer : gpus) cells.push_back({link_text(gpu, peer.index)});
    cells.push_back({gpu.numa_node ? std::to_string(*gpu.numa_node) : "?"});
    cells.push_back({gpu.cpu_affinity.empty() ? "?" : gpu.cpu_affinity});
    table.add(std::move(cells));
  }
  return table;
}

Table gpu_table(const std::vector<api::GpuStatus>& gpus) {
  Table table({{.title = "GPU", .right = true},
               {.title = "TYPE"},
               {.title = "HEALTH"},
               {.title = "UTIL", .right = true},
               {.title = "MEMORY", .right = true},
               {.title = "TEMP", .right = true},
               {.title = "POWER", .right = true},
               {.title = "FREE", .width_min = 4},
               {.title = "HELD BY", .width_min = 12}});
  for (const api::GpuStatus& gpu : gpus) {
    table.add({{std::to_string(gpu.index)},
               {gpu.type},
               {health_text(gpu), health_style(gpu)},
               {gpu.utilisation_percent ? std::to_string(*gpu.utilisation_percent) + "%" : "?"},
               {memory_text(gpu)},
               {gpu.temperature_celsius ? std::to_string(*gpu.temperature_celsius) + "C" : "?"},
               {gpu.power_milliwatts ? std::to_string(*gpu.power_milliwatts / 1000) + "W" : "?"},
               {free_text(gpu)},
               {holders_text(gpu)}});
  }
  return table;
}

Result<int> drain(Session& session, const Arguments& arguments, bool drained) {
  if (arguments.words.size() != 2) {
    return invalid("name the GPU by its index: tranche gpus " + arguments.words.front() + " 3");
  }
  const auto number = parse_integer(arguments.words[1], 0, UINT32_MAX, "a GPU's index");
  if (!number)
    return invalid(in_quotes(arguments.words[1]) + " is not the index of a GPU; 'tranche gpus' lists them");
  const int64_t index = *number;
  const std::string* reason = arguments.find("reason");
  if (drained && reason == nullptr)
    return invalid("say why, for those who wait: --reason 'fan replaced on Monday'");
  if (!drained && reason != nullptr) return invalid("--reason belongs to drain; undrain needs none");
  Daemon daemon(session);
  const std::string target = "/v1/gpus/" + std::to_string(index) + (drained ? "/drain" : "/undrain");
  const std::string body = drained ? api::encode(api::DrainRequest{.reason = *reason}) : std::string();
  TRY(daemon.post(target, body));
  session.print("GPU " + std::to_string(index) +
                (drained ? " drained: what runs goes on, nothing new starts\n" : " takes new work again\n"));
  return 0;
}

}  // namespace

Result<int> run_gpus(Session& session, const Arguments& arguments) {
  if (!arguments.words.empty()) {
    const std::string& what = arguments.words.front();
    if (arguments.has("topology")) return invalid("--topology goes with no word: tranche gpus --topology");
    if (what == "drain") return drain(session, arguments, true);
    if (what == "undrain") return drain(session, arguments, false);
    return invalid(in_quotes(what) + " is not known here; write: tranche gpus [drain|undrain INDEX]");
  }
  if (arguments.has("reason")) return invalid("--reason belongs to: tranche gpus drain INDEX");
  Daemon daemon(session);
  TRY_ASSIGN(const std::string json, daemon.get("/v1/gpus"));
  if (arguments.has("json")) {
    session.print_json(json);
    return 0;
  }
  TRY_ASSIGN(const api::GpuList list, Daemon::decoded<api::GpuList>(json));
  const bool topology = arguments.has("topology");
  const Table table = topology ? topology_table(list.gpus) : gpu_table(list.gpus);
  session.print(table.render(session.look(), !arguments.has("no-header")));
  for (const api::GpuStatus& gpu : list.gpus) {
    if (!topology) session.print(notes_text(gpu));
  }
  if (list.gpus.empty()) session.note("this server has no GPU; 'tranche doctor' says what is missing\n");
  return 0;
}

}  // namespace tranche::cli
