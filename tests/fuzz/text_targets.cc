// What users and administrators write as text: requests, answers as a client reads them, configuration,
// scripts.
#include <algorithm>

#include "cli/job_request.h"
#include "cli/script.h"
#include "codec/api.h"
#include "codec/config.h"
#include "codec/event_json.h"
#include "codec/job_rows.h"
#include "codec/policy_json.h"
#include "codec/random_values.h"
#include "codec/sweep.h"
#include "fuzz_target.h"
#include "linux/http_target.h"

namespace tranche::fuzz {
namespace {

template <class Value>
bool decode_again(std::string_view bytes) {
  const Result<Value> value = api::decode<Value>(bytes);
  if (!value) return false;
  const Result<Value> again = api::decode<Value>(api::encode(*value));
  require(again.has_value() && *again == *value, "a value is not what it was after writing and reading it");
  return true;
}

template <class Value>
void add_values(std::vector<std::string>& inputs) {
  for (uint64_t seed = 1; seed <= 4; ++seed)
    inputs.push_back(api::encode(json::RandomFiller(seed).make<Value>()));
}

// --- requests: bodies and targets of the HTTP API

bool run_request(std::string_view bytes) {
  if (bytes.starts_with('/')) return parse_http_target(bytes).has_value();
  if (const auto sweep = api::parse_sweep(bytes)) {
    const auto again = api::parse_sweep(api::format_sweep(sweep->parameters));
    require(again.has_value() && again->parameters == sweep->parameters,
            "a sweep is read otherwise when written");
    return true;
  }
  bool accepted = false;
  using namespace api;
#define TRANCHE_FUZZ_DECODE(Type) accepted = decode_again<Type>(bytes) || accepted;
  TRANCHE_API_REQUESTS(TRANCHE_FUZZ_DECODE)
  return accepted;
}

std::vector<std::string> request_seeds() {
  std::vector<std::string> inputs = {"/v1/jobs?state=running&limit=20&after=7",
                                     "/v1/jobs/7%2e/logs?stream=stdout", "lr=0.1,0.01 seed=1..3 %4",
                                     "x=0..100:10"};
  using namespace api;
#define TRANCHE_FUZZ_ADD(Type) add_values<Type>(inputs);
  TRANCHE_API_REQUESTS(TRANCHE_FUZZ_ADD)
  return inputs;
}

std::vector<std::string> json_words() {
  std::vector<std::string> words = {"{",    "}",        "[",       "]",        ",",    ":",
                                    "\"",   "\\u0000",  "\\ud800", "\\u00e9",  "true", "false",
                                    "null", "\xC3\xA9", "\xFF",    "[[[[[[[[", "{}",   "[]",
                                    "\"\"", "-",        "1..3",    "..",       "%",    "0.5"};
  for (const api::SchemaFields& schema : api::schema_fields()) {
    for (const api::FieldName& field : schema.fields) words.push_back("\"" + field.name + "\":");
  }
  return words;
}

// --- answers: what a client believes of a daemon, or of whoever answers in its place

bool run_answer(std::string_view bytes) {
  bool accepted = api::read_job_rows(bytes, [](const api::JobSummary& job) {
                    std::string line(api::kJobRowsHeading);
                    api::append_job_row(line, job);
                    require(api::read_job_rows(line, [](const api::JobSummary&) {}).has_value(),
                            "a job's row cannot be read when it is written");
                  }).has_value();
  accepted = decode_event_page(bytes).has_value() || accepted;
  using namespace api;
  TRANCHE_API_ANSWERS(TRANCHE_FUZZ_DECODE)
  return accepted;
}

std::vector<std::string> answer_seeds() {
  std::vector<std::string> inputs;
  std::string rows(api::kJobRowsHeading);
  std::vector<JournalRow> page;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    json::RandomFiller filler(seed);
    api::append_job_row(rows, filler.make<api::JobSummary>());
    page.push_back(json::random_row(filler, seed));
  }
  inputs.push_back(std::move(rows));
  inputs.push_back(encode_event_page(page));
  using namespace api;
  TRANCHE_API_ANSWERS(TRANCHE_FUZZ_ADD)
  std::erase_if(inputs, [](const std::string& input) { return input.size() > 16'384; });
  return inputs;
}

std::vector<std::string> answer_words() {
  std::vector<std::string> words = json_words();
  for (const char* word : {"\t", "\n", "\\t", "\\n", "\\\\", "job", "display"}) words.emplace_back(word);
  return words;
}

// --- configuration

bool run_config(std::string_view bytes) {
  const auto config = parse_config_text(bytes, "fuzz.toml");
  if (!config) return false;
  for (const std::string& sentence : explain_config(*config))
    require(!sentence.empty(), "an empty sentence explains");
  const auto policy = decode_policy(encode_policy(config->policy));
  require(policy.has_value() && *policy == config->policy,
          "a policy is not what it was after writing and reading it");
  return true;
}

// Every key with its default, table by table, and what users write.
std::vector<std::string> config_seeds() {
  std::vector<std::string> inputs = {
      "[policy]\nusage_half_life = \"7d\"\n[queue.\"physics/vision\"]\nquota = 4\nlimit = 8\nweight = 2\n",
      "[class.training]\npriority = -5\npreemptible = true\n[queue.default]\nweight = 1\n",
      "[daemon]\nmode = \"observe\"\n[share]\nrecall_signal = \"SIGURG\"\n[watchdog]\npause_after = \"1m\"\n",
      "[hook.chat]\nurl = \"https://example.org/x\"\nevents = [\"ended\"]\n[mail]\nprogram = "
      "\"/usr/sbin/sendmail\"\n"};
  std::erase_if(inputs, [](const std::string& input) { return !run_config(input); });
  std::string table, text;
  for (const ConfigKey& key : config_keys()) {
    if (key.table != table) {
      if (!text.empty() && run_config(text)) inputs.push_back(text);
      table = key.table;
      text = "[" + (table == "class.NAME" ? std::string("class.training") : table) + "]\n";
    }
    const std::string line = std::string(key.name) + " = " + key.default_text + "\n";
    if (!key.default_text.empty() && run_config(text + line)) text += line;
  }
  if (run_config(text)) inputs.push_back(text);
  return inputs;
}

std::vector<std::string> config_words() {
  std::vector<std::string> words = {"[",      "]",       "[[",
                                    "]]",     "=",       "\n",
                                    "\"",     "'''",     "\"\"\"",
                                    "nan",    "-inf",    "0x7f",
                                    "\"7d\"", "\"10G\"", "\\u0000",
                                    "1_0",    "{",       "}",
                                    "#",      ".",       "1979-05-27T07:32:00Z",
                                    "true",   "\"8h\"",  "[\"a\", \"b\"]"};
  for (const ConfigKey& key : config_keys()) {
    words.push_back("\n" + std::string(key.name) + " = ");
    words.push_back("\n[" + std::string(key.table) + "]\n");
  }
  return words;
}

// --- scripts: #TRANCHE and #SBATCH lines

bool run_script(std::string_view bytes) {
  const auto script = cli::read_script_text(std::string(bytes), "job.sh");
  if (!script) return false;
  require(script->text == bytes, "a script's text is changed");
  require(cli::check_job_options(script->directives).has_value(),
          "options are accepted line by line and refused together");
  return true;
}

std::vector<std::string> script_seeds() {
  return {"#!/bin/bash\n#TRANCHE -G 2 --time=2h\n#TRANCHE -J 'my run' -c 4 --mem 8G\necho hi\n",
          "#!/bin/sh\n#SBATCH --gres=gpu:h100:2\n#SBATCH -t 1-02:03:04\n#SBATCH --mem=16G -J x\nsrun a\n",
          "#!/bin/sh\n#SBATCH --array=1-9%3\n#SBATCH --dependency=afterok:7:8,afterany:9\n",
          "#!/bin/sh\n#TRANCHE -a 0-20:5 --class interactive --signal USR1@120\n",
          "#!/bin/sh\n#TRANCHE -G 0.5 --retry error:1,oom:1 --notify mail:ended\n",
          "#!/bin/sh\n#TRANCHE --gpu-mem 10G..20G --export ALL,A=b\n#SBATCH --begin=now+2hours\n",
          "#!/bin/sh\n#TRANCHE -n 2-4 --begin 2026-12-01T08:30\n"};
}

std::vector<std::string> script_words() {
  std::vector<std::string> words = {
      "\n#TRANCHE ", "\n#SBATCH ", "#",          "\n",         "'",        "\"",  "\\",         "\t",
      "\r\n",        "..",         "%",          "1-02:03:04", "10G..20G", "0.5", "gpu:h100:2", "afterok:7",
      "now+2h",      "USR1@120",   "mail:ended", "ALL,A=b",    "\xC2\x9B", "--",  "="};
  for (const char* option :
       {"array",       "begin",         "chdir",         "class",       "comment",       "constraint",
        "cpus",        "deadline",      "dependency",    "error",       "exclusive",     "export",
        "gpu-compute", "gpu-mem",       "gpus",          "grace",       "gres",          "hold",
        "input",       "job-name",      "mem",           "mail-type",   "nodes",         "notify",
        "ntasks",      "output",        "partition",     "priority",    "requeue",       "retry",
        "signal",      "sweep",         "time",          "time-min",    "cpus-per-task", "qos",
        "queue",       "gpus-per-task", "gpus-per-node", "mem-per-cpu", "name",          "tasks"})
    words.push_back(std::string("--") + option + "=");
  for (const char* letter : {"-G ", "-t ", "-J ", "-c ", "-n ", "-a ", "-d ", "-o ", "-e ", "-N ", "-p "})
    words.emplace_back(letter);
  return words;
}

// --- the journal's rows

bool run_row(std::string_view bytes) {
  const auto row = decode_row(bytes);
  if (!row) return false;
  const auto again = decode_row(encode_row(row->event, row->decisions));
  require(again.has_value() && *again == *row, "a row is not what it was after writing and reading it");
  const auto stored = decode_stored_row(store_row(row->event, row->decisions));
  require(stored.has_value() && *stored == *row, "a stored row is another");
  return true;
}

std::vector<std::string> row_seeds() {
  std::vector<std::string> inputs;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    json::RandomFiller filler(seed);
    const JournalRow row = json::random_row(filler, seed);
    inputs.push_back(encode_row(row.event, row.decisions));
    std::string spelt;
    append_row(spelt, row.event, row.decisions, TimeSpelling::rfc3339);
    inputs.push_back(std::move(spelt));
  }
  std::erase_if(inputs, [](const std::string& input) { return input.size() > 8192; });
  return inputs;
}

}  // namespace

std::vector<std::string> row_words() {
  std::vector<std::string> words = {"{",  "}",  "[",    "]",    ",",
                                    "\"", "\n", "null", "true", "\"2026-12-01T00:00:00Z\""};
  // Names of members and kinds, from right rows.
  for (const std::string& row : row_seeds()) {
    for (size_t at = row.find('"'); at != std::string::npos;) {
      const size_t end = row.find('"', at + 1);
      if (end == std::string::npos) break;
      std::string word = row.substr(at, end + 1 - at);
      if (word.size() > 3 && word.size() < 40 && std::all_of(word.begin() + 1, word.end() - 1, [](char c) {
            return (c >= 'a' && c <= 'z') || c == '_';
          }))
        words.push_back(row[end + 1] == ':' ? word + ":" : word);
      at = row.find('"', end + 1);
    }
  }
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  return words;
}

std::vector<Target> text_targets() {
  return {{"request", run_request, request_seeds, json_words},
          {"answer", run_answer, answer_seeds, answer_words},
          {"journal", run_row, row_seeds, row_words},
          {"config", run_config, config_seeds, config_words},
          {"script", run_script, script_seeds, script_words}};
}

}  // namespace tranche::fuzz
