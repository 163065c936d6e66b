// #SBATCH lines in the options of `submit`. The rule (design section 13): what has no meaning here warns, but
// what changes resources, time, dependency or array and cannot be obeyed is refused.
#include <algorithm>

#include "cli/option_error.h"
#include "cli/script.h"
#include "cli/text.h"

namespace tranche::cli {
namespace {

enum class Action : unsigned char {
  kSame,     // our option `ours` with the same value
  kGres,     // gpu[:TYPE][:N]
  kBegin,    // "now+60" counts seconds in Slurm
  kOnlyOne,  // fine if it is 1
  kQuietly,  // nothing to do here, nothing lost
  kWarn,     // has no meaning here
  kRefuse,   // changes what the job gets
};

struct SlurmOption {
  std::string_view name;  // long, without dashes
  char letter;            // or 0
  bool takes_value;
  Action action;
  std::string_view ours;  // option of `submit`, or what to write instead
};

constexpr std::string_view kOneMachine = "a job runs on one machine";
constexpr std::string_view kOneTask =
    "Slurm runs the script once and Tranche once a task; ask for cores with --cpus-per-task, or write "
    "#TRANCHE -n";
constexpr std::string_view kPerMemory = "write the memory of the whole task with --mem";
constexpr std::string_view kPick = "choose GPUs by type: -G TYPE:N";

constexpr SlurmOption kSlurmOptions[] = {
    {"job-name", 'J', true, Action::kSame, "name"},
    {"partition", 'p', true, Action::kSame, "queue"},
    {"time", 't', true, Action::kSame, "time"},
    {"gpus", 'G', true, Action::kSame, "gpus"},
    {"gpus-per-node", 0, true, Action::kSame, "gpus"},
    {"gpus-per-task", 0, true, Action::kSame, "gpus"},
    {"gres", 0, true, Action::kGres, "gpus"},
    {"cpus-per-task", 'c', true, Action::kSame, "cpus"},
    {"mem", 0, true, Action::kSame, "mem"},
    {"array", 'a', true, Action::kSame, "array"},
    {"dependency", 'd', true, Action::kSame, "dependency"},
    {"begin", 'b', true, Action::kBegin, "begin"},
    {"chdir", 'D', true, Action::kSame, "chdir"},
    {"output", 'o', true, Action::kSame, "output"},
    {"error", 'e', true, Action::kSame, "error"},
    {"input", 'i', true, Action::kSame, "input"},
    {"export", 0, true, Action::kSame, "export"},
    {"hold", 'H', false, Action::kSame, "hold"},
    {"requeue", 0, false, Action::kSame, "requeue"},
    {"no-requeue", 0, false, Action::kSame, "no-requeue"},
    {"nodes", 'N', true, Action::kOnlyOne, kOneMachine},
    {"ntasks", 'n', true, Action::kOnlyOne, kOneTask},
    {"ntasks-per-node", 0, true, Action::kOnlyOne, kOneTask},
    {"ntasks-per-gpu", 0, true, Action::kOnlyOne, kOneTask},
    {"parsable", 0, false, Action::kQuietly, ""},
    {"verbose", 'v', false, Action::kQuietly, ""},
    {"quiet", 'Q', false, Action::kQuietly, ""},
    {"mem-per-cpu", 0, true, Action::kRefuse, kPerMemory},
    {"mem-per-gpu", 0, true, Action::kRefuse, kPerMemory},
    {"gpus-per-socket", 0, true, Action::kRefuse, "write the number of GPUs with --gpus"},
    {"cpus-per-gpu", 0, true, Action::kRefuse, "write the cores of the whole task with --cpus-per-task"},
    {"cores-per-socket", 0, true, Action::kRefuse, "ask for cores with --cpus-per-task"},
    {"sockets-per-node", 0, true, Action::kRefuse, "ask for cores with --cpus-per-task"},
    {"threads-per-core", 0, true, Action::kRefuse, "ask for cores with --cpus-per-task"},
    {"mincpus", 0, true, Action::kRefuse, "ask for cores with --cpus-per-task"},
    {"tmp", 0, true, Action::kRefuse, "there are no promises about /tmp"},
    {"constraint", 'C', true, Action::kRefuse, kPick},
    {"prefer", 0, true, Action::kWarn, ""},
    {"nodelist", 'w', true, Action::kRefuse, kOneMachine},
    {"exclude", 'x', true, Action::kRefuse, kOneMachine},
    {"exclusive", 0, false, Action::kRefuse,
     "ask for what the job needs: whole GPUs with -G N, cores with -c"},
    {"oversubscribe", 's', false, Action::kWarn, ""},
    {"overcommit", 'O', false, Action::kRefuse, "ask for cores with --cpus-per-task"},
    {"licenses", 'L', true, Action::kRefuse, "there are no licenses to count"},
    {"reservation", 0, true, Action::kRefuse, "there are no bookings yet"},
    {"deadline", 0, true, Action::kRefuse, "bound the run with --time"},
    {"time-min", 0, true, Action::kRefuse, "give one limit with --time"},
    {"container", 0, true, Action::kRefuse, "the job runs in this machine's own file system"},
    {"het-group", 0, true, Action::kRefuse, "submit one job for each part"},
    {"uid", 0, true, Action::kRefuse, "a job runs as whoever submits it"},
    {"gid", 0, true, Action::kRefuse, "a job runs as whoever submits it"},
    {"account", 'A', true, Action::kWarn, ""},
    {"qos", 'q', true, Action::kWarn, ""},
    {"nice", 0, true, Action::kWarn, ""},
    {"priority", 0, true, Action::kWarn, ""},
    {"signal", 0, true, Action::kSame, "signal"},
    {"mail-type", 0, true, Action::kWarn, ""},
    {"mail-user", 0, true, Action::kWarn, ""},
    {"comment", 0, true, Action::kWarn, ""},
    {"open-mode", 0, true, Action::kWarn, ""},
    {"profile", 0, true, Action::kWarn, ""},
    {"get-user-env", 0, false, Action::kWarn, ""},
    {"kill-on-invalid-dep", 0, true, Action::kWarn, ""},
    {"wait-all-nodes", 0, true, Action::kWarn, ""},
    {"cpu-freq", 0, true, Action::kWarn, ""},
    {"gpu-bind", 0, true, Action::kWarn, ""},
    {"gpu-freq", 0, true, Action::kWarn, ""},
    {"hint", 0, true, Action::kWarn, ""},
    {"mem-bind", 0, true, Action::kWarn, ""},
    {"distribution", 'm', true, Action::kWarn, ""},
    {"wait", 'W', false, Action::kWarn, ""},
    {"test-only", 0, false, Action::kWarn, ""},
};

struct Written {
  std::string name;  // as written: "--mem" or "-t"
  const SlurmOption* row = nullptr;
  std::string value;
};

const SlurmOption* find_slurm_option(std::string_view word) {
  for (const SlurmOption& row : kSlurmOptions) {
    const bool is_long = word.starts_with("--");
    if (is_long ? word.substr(2) == row.name : word.size() == 2 && word[1] == row.letter) return &row;
  }
  return nullptr;
}

// One option with its value from words[i...]; `i` moves past it.
Result<Written> take_written(const std::vector<std::string>& words, size_t& i) {
  const std::string& word = words[i++];
  if (!word.starts_with('-') || word.size() < 2) return invalid(in_quotes(word) + " is not an option");
  Written written;
  const bool is_long = word.starts_with("--");
  const size_t end = is_long ? word.find('=') : 2;
  written.name = word.substr(0, end);
  written.row = find_slurm_option(written.name);
  const bool attached = end != std::string::npos && end < word.size();
  if (attached) written.value = word.substr(is_long ? end + 1 : end);
  // The value of an option that nobody knows is taken with it.
  const bool wants = written.row != nullptr ? written.row->takes_value : true;
  const bool follows = i < words.size() && !words[i].starts_with('-');
  if (wants && !attached && follows) written.value = words[i++];
  if (written.row != nullptr && wants && written.value.empty())
    return invalid(written.name + " needs a value");
  return written;
}

Result<std::string> gpus_of_gres(const std::string& value) {
  const std::string_view advice = "; only --gres=gpu:N and --gres=gpu:TYPE:N are understood";
  const std::vector<std::string> parts = split(value, ':');
  if (parts.front() != "gpu" || parts.size() > 3 || value.find(',') != std::string::npos) {
    return invalid("--gres=" + printable(value) + " cannot be given" + std::string(advice));
  }
  if (parts.size() == 1) return std::string("1");
  return parts.size() == 2 ? parts[1] : parts[1] + ":" + parts[2];
}

// Slurm: "now+60" is seconds, "now+2hours" has words for units.
std::string begin_of(const std::string& value) {
  if (!value.starts_with("now+")) return value;
  const size_t unit = value.find_first_not_of("0123456789", 4);
  const std::string number = value.substr(0, unit);
  if (unit == std::string::npos) return number + "s";
  return number + value[unit];
}

tl::unexpected<Error> refused(const Written& written) {
  return invalid("#SBATCH " + written.name + " changes what the job gets and cannot be obeyed; " +
                 std::string(written.row->ours));
}

Result<void> translate(const Written& written, SlurmDirective& directive) {
  if (written.row == nullptr) {
    directive.warnings.push_back("#SBATCH " + in_quotes(written.name) + " is not known and is ignored");
    return {};
  }
  const std::string ours = "--" + std::string(written.row->ours);
  switch (written.row->action) {
    case Action::kSame:
      directive.words.push_back(written.row->takes_value ? ours + "=" + written.value : ours);
      return {};
    case Action::kGres: {
      TRY_ASSIGN(const std::string gpus, gpus_of_gres(written.value));
      directive.words.push_back(ours + "=" + gpus);
      return {};
    }
    case Action::kBegin:
      directive.words.push_back(ours + "=" + begin_of(written.value));
      return {};
    case Action::kOnlyOne:
      if (written.value == "1") return {};
      return refused(written);
    case Action::kQuietly:
      return {};
    case Action::kWarn:
      directive.warnings.push_back("#SBATCH " + written.name + " has no meaning here and is ignored");
      return {};
    case Action::kRefuse:
      return refused(written);
  }
  return {};
}

}  // namespace

Result<SlurmDirective> translate_slurm(const std::vector<std::string>& words) {
  SlurmDirective directive;
  for (size_t i = 0; i < words.size();) {
    TRY_ASSIGN(const Written written, take_written(words, i));
    TRY(translate(written, directive));
  }
  return directive;
}

}  // namespace tranche::cli
