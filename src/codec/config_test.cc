#include "codec/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "base/random.h"
#include "codec/test_files.h"

namespace tranche {
namespace {

std::string config_error(std::string_view text) {
  const auto config = parse_config_text(text, "t.toml");
  return config ? std::string("(accepted)") : config.error().message();
}

const QueuePolicy* find_queue(const Policy& policy, std::string_view path) {
  for (const QueuePolicy& queue : policy.queues) {
    if (queue.path == path) return &queue;
  }
  return nullptr;
}

TEST(Config, EmptyTextIsTheDefaults) {
  const auto config = parse_config_text("", "t.toml");
  ASSERT_TRUE(config.has_value());
  DaemonConfig defaults;
  defaults.policy.queues.emplace_back().path = "default";
  EXPECT_EQ(*config, defaults);
  EXPECT_EQ(config->socket_path(), "/run/tranche/tranche.sock");
}

TEST(Config, ReadsEveryKindOfValue) {
  const auto config = parse_config_text(R"(
[daemon]
run_dir = "/tmp/run"
operator_users = ["ada", "grace"]
log_level = "debug"
journal_ballast = "1G"
[driver]
emulated = true
library_dir = "/opt/driver"
[gpus]
manage = ["GPU-1", "GPU-2"]
sample_interval = "500ms"
[policy]
half_life = "0s"
minimum_runtime = "1h30m"
backfill = false
users_share_gpu = true
jobs_per_user_max = 7
default_queue = "lab/all"
[class.training]
priority = -5
preemptible = false
time_limit = "8h"
[queue."physics/vision"]
quota = 2
limit = 4.5
weight = 3
priority = 10
user_limit = 0.125
)",
                                        "t.toml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->socket_path(), "/tmp/run/tranche.sock");
  EXPECT_EQ(config->operator_users, (std::vector<std::string>{"ada", "grace"}));
  EXPECT_EQ(config->log_level, LogThreshold::debug);
  EXPECT_EQ(config->journal_ballast, MiB(1024));
  EXPECT_EQ(config->emulated, EmulatedNodes::yes);
  EXPECT_EQ(config->manage.size(), 2u);
  EXPECT_EQ(config->sample_interval, Duration(500 * kMillisecond.count()));
  const Policy& policy = config->policy;
  EXPECT_EQ(policy.usage_half_life, Duration{});
  EXPECT_EQ(policy.minimum_runtime, Duration(90 * kMinute.count()));
  EXPECT_FALSE(policy.backfill);
  EXPECT_TRUE(policy.users_share_gpu);
  EXPECT_EQ(policy.jobs_per_user_max, 7u);
  EXPECT_EQ(policy.for_class(JobClass::training).priority, -5);
  EXPECT_EQ(policy.for_class(JobClass::training).time_limit_default, Duration(8 * kHour.count()));
  EXPECT_EQ(policy.for_class(JobClass::inference).priority, 50);
  ASSERT_EQ(policy.queues.size(), 4u);  // with the parents, and the default queue
  EXPECT_TRUE(std::is_sorted(policy.queues.begin(), policy.queues.end(),
                             [](const auto& a, const auto& b) { return a.path < b.path; }));
  const QueuePolicy* vision = find_queue(policy, "physics/vision");
  ASSERT_NE(vision, nullptr);
  EXPECT_EQ(vision->quota, MilliGpu(2000));
  EXPECT_EQ(vision->limit, MilliGpu(4500));
  EXPECT_EQ(vision->weight, 3);
  EXPECT_EQ(vision->priority, 10);
  EXPECT_EQ(vision->user_limit, MilliGpu(125));
  EXPECT_FALSE(find_queue(policy, "physics")->quota.has_value());
}

// Each: the text, the place, and words that the sentence must have.
struct BadConfig {
  const char* text;
  const char* place;
  const char* words;
};

constexpr BadConfig kBadConfigs[] = {
    {"[queue.physics]\nqouta = 2", "t.toml:2:1: ", "did you mean \"quota\"?"},
    {"[polcy]", "t.toml:1:1: ", "did you mean \"policy\"?"},
    {"colour = 1", "t.toml:1:1: ", "known are: daemon"},
    {"[class.trainig]", "t.toml:1:1: ", "did you mean \"training\"?"},
    {"[policy]\n  half_live = \"7d\"", "t.toml:2:3: ", "did you mean \"half_life\"?"},
    {"[queue.a]\nquota = nan", "t.toml:2:1: ", "not nan"},
    {"[queue.a]\nquota = inf", "t.toml:2:1: ", "not inf"},
    {"[queue.a]\nquota = -1", "t.toml:2:1: ", "from 0 to 1000000"},
    {"[queue.a]\nquota = 1e300", "t.toml:2:1: ", "a number of GPUs"},
    {"[queue.a]\nquota = 1e-9", "t.toml:2:1: ", "three places"},
    {"[queue.a]\nquota = 1.0000001", "t.toml:2:1: ", "three places"},
    {"[queue.a]\nquota = \"2.5\"", "t.toml:2:1: ", "without quotes"},
    {"[queue.a]\nquota = \"2 GPUs\"", "t.toml:2:1: ", "without unit"},
    {"[queue.a]\nquota = true", "t.toml:2:1: ", "not true"},
    {"[queue.a]\nquota = [2]", "t.toml:2:1: ", "not a list"},
    {"[queue.a]\nquota = 2001-01-01", "t.toml:2:1: ", "not a date"},
    {"[queue.a]\nquota.b = 2", "t.toml:2:", "quota"},
    {"[queue.a]\nweight = -1", "t.toml:2:1: ", "from 0 to"},
    {"[queue.a]\nweight = 1.5", "t.toml:2:1: ", "whole number"},
    {"[queue.a]\nlimit = 1\nquota = 2", "t.toml:3:1: ", "above its limit"},
    {"[queue.a]\nlimit = 1\n[queue.\"a/b\"]\nquota = 2", "t.toml:4:1: ", "the limit of \"a\""},
    {"[queue.\"Physics\"]", "t.toml:1:1: ", "not a queue's path"},
    {"[queue.\"a//b\"]", "t.toml:1:1: ", "not a queue's path"},
    {"[queue.\"/a\"]", "t.toml:1:1: ", "not a queue's path"},
    {"[queue.\"\"]", "t.toml:1:1: ", "not a queue's path"},
    {"[queue.\"a/b/c/d/e/f/g/h\"]", "t.toml:1:1: ", "one to seven names"},
    {"[queue]\na = 2", "t.toml:2:1: ", "[queue.NAME]"},
    {"queue = 2", "t.toml:1:1: ", "must be a table"},
    {"[policy]\nhalf_life = 7", "t.toml:2:1: ", "in quotes with its unit"},
    {"[policy]\nhalf_life = \"7\"", "t.toml:2:1: ", "has no unit"},
    {"[policy]\nhalf_life = \"-7d\"", "t.toml:2:1: ", "not a duration"},
    {"[policy]\nhalf_life = \"9999d\"", "t.toml:2:1: ", "longer than 366 days"},
    {"[policy]\nbackfill = \"yes\"", "t.toml:2:1: ", "true or false"},
    {"[policy]\njobs_per_user_max = 9999999999999999999", "t.toml:2:", ""},
    {"[class.training]\ntime_limit = \"8d\"", "t.toml:2:1: ", "time_limit_max"},
    {"[class.training]\npriority = 99999999", "t.toml:2:1: ", "from -1000000 to 1000000"},
    {"[daemon]\njournal_ballast = \"1GB\"", "t.toml:2:1: ", "write G"},
    {"[daemon]\njournal_ballast = 64", "t.toml:2:1: ", "with its unit"},
    {"[daemon]\nrun_dir = \"run\"", "t.toml:2:1: ", "absolute path"},
    {"[daemon]\nrun_dir = \"\"", "t.toml:2:1: ", "must not be empty"},
    {"[daemon]\nlog_level = \"loud\"", "t.toml:2:1: ", "\"warning\""},
    {"[api]\nlisten = \"0.0.0.0:80\"", "t.toml:2:1: ", "TLS only"},
    {"[api]\nlisten = \"8080\"", "t.toml:2:1: ", "numeric address"},
    {"[hook.chat]\nsecret_file = \"/x\"", "t.toml:1:", "has no url"},
    {"[hook.mail]\nurl = \"https://a\"", "t.toml:1:", "not a hook's name"},
    {"[hook.chat]\nurl = \"ftp://a\"", "t.toml:2:1: ", "https://"},
    {"[hook.chat]\nurl = \"https://a\"\nevents = [\"begun\"]", "t.toml:3:1: ", "begun"},
    {"[mail]\nfrom = \"a b\"", "t.toml:2:1: ", "word"},
    {"[daemon]\noperator_users = [1]", "t.toml:2:1: ", "list of names"},
    {"[daemon]\noperator_users = \"ada\"", "t.toml:2:1: ", "list of names"},
    {"[driver]\nemulated = \"perhaps\"", "t.toml:2:1: ", "\"auto\", true or false"},
    {"[gpus]\nmanage = [\"0\"]", "t.toml:2:1: ", "UUID"},
    {"[gpus]\nmanage = []", "t.toml:2:1: ", "at least one"},
    {"[gpus]\nsample_interval = \"1ns\"", "t.toml:2:1: ", "from 100ms to 1h"},
    {"[policy\nx = 1", "t.toml:", ""},
    {"[policy]\nbackfill = true\nbackfill = false", "t.toml:3:", ""},
    {"\xff", "t.toml:1:", ""},
};

TEST(Config, EveryMistakeNamesItsPlaceAndWhatToDo) {
  for (const BadConfig& bad : kBadConfigs) {
    SCOPED_TRACE(bad.text);
    ConfigPosition where;
    const auto config = parse_config_text(bad.text, "t.toml", &where);
    ASSERT_FALSE(config.has_value());
    const std::string& message = config.error().message();
    EXPECT_TRUE(message.starts_with(bad.place)) << message;
    EXPECT_NE(message.find(bad.words), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(where.origin, "t.toml");
    EXPECT_GT(where.line, 0u) << message;
    EXPECT_GT(where.column, 0u) << message;
  }
}

TEST(Config, LongSocketPathIsRefused) {
  EXPECT_NE(config_error("[daemon]\nsocket = \"/" + std::string(107, 'x') + "\"").find("at most 107 bytes"),
            std::string::npos);
}

TEST(Config, HostileTextsAreAnswered) {
  EXPECT_NE(config_error("a = " + std::string(100'000, '[')), "(accepted)");
  std::string dotted = "a";
  for (int i = 0; i < 1000; ++i) dotted += ".a";
  EXPECT_NE(config_error("[" + dotted + "]"), "(accepted)");
  EXPECT_NE(config_error(std::string((1 << 20) + 1, '#')), "(accepted)");
  const std::string text = read_source_file("examples/tranche.toml");
  Random random(20261130);
  for (int i = 0; i < 300; ++i) {
    std::string changed = text.substr(0, random.below(text.size()));
    if (!changed.empty()) changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    (void)parse_config_text(changed, "t.toml");
  }
}

TEST(Config, LaterFilesOverrideSingleKeys) {
  const ConfigSource sources[] = {
      {"a.toml", "[queue.physics]\nquota = 4\nlimit = 8\n[policy]\nbackfill = false"},
      {"b.toml", "[queue.physics]\nquota = 2"}};
  const auto config = parse_config(sources);
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(find_queue(config->policy, "physics")->quota, MilliGpu(2000));
  EXPECT_EQ(find_queue(config->policy, "physics")->limit, MilliGpu(8000));
  EXPECT_FALSE(config->policy.backfill);
  const ConfigSource conflict[] = {{"a.toml", "[queue.physics]\nlimit = 8"},
                                   {"b.toml", "\n[queue.physics]\nquota = 9"}};
  const auto refused = parse_config(conflict);
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().message().starts_with("b.toml:3:1: ")) << refused.error().message();
}

class ConfigFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tranche-config-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    for (const std::string& path : made_) ::unlink(path.c_str());
    ::rmdir((directory_ + "/conf.d").c_str());
    ::rmdir(directory_.c_str());
  }
  void write(const std::string& name, const std::string& text) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << text;
    made_.push_back(path);
  }
  std::string directory_;
  std::vector<std::string> made_;
};

TEST_F(ConfigFiles, DropInsAreReadInLexicalOrder) {
  ASSERT_EQ(::mkdir((directory_ + "/conf.d").c_str(), 0700), 0);
  write("tranche.toml", "[policy]\ngrace = \"1s\"\nhalf_life = \"1d\"");
  write("conf.d/20-b.toml", "[policy]\ngrace = \"3s\"");
  write("conf.d/10-a.toml", "[policy]\ngrace = \"2s\"");
  write("conf.d/90-note.txt", "not TOML");
  const auto config = load_config(directory_ + "/tranche.toml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->policy.grace_default, Duration(3 * kSecond.count()));
  EXPECT_EQ(config->policy.usage_half_life, kDay);
}

TEST_F(ConfigFiles, MissingFileIsSaid) {
  const auto config = load_config(directory_ + "/none.toml");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(config.error().code(), ErrorCode::not_found);
  EXPECT_NE(config.error().message().find("none.toml: cannot be read: No such file"), std::string::npos);
}

TEST(Config, ExampleFileIsShortAndRight) {
  const std::string text = read_source_file("examples/tranche.toml");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20);
  const auto config = parse_config_text(text, "examples/tranche.toml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(find_queue(config->policy, "physics/vision")->quota, MilliGpu(2000));
  EXPECT_EQ(find_queue(config->policy, "teaching")->limit, MilliGpu(2000));
}

TEST(Config, PolicyInSentences) {
  const auto config = parse_config_text(
      "[queue.a]\nquota = 1\nuser_limit = 0.5\n[queue.\"a/b\"]\nquota = 2\n[queue.c]\nlimit = 3\npriority = "
      "-1",
      "t.toml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  std::string all;
  for (const std::string& sentence : explain_policy(config->policy)) {
    EXPECT_TRUE(sentence.ends_with('.')) << sentence;
    all += sentence + "\n";
  }
  EXPECT_NE(all.find("Queue a is promised 1 GPU,"), std::string::npos) << all;
  EXPECT_NE(all.find("each of its users holds at most 0.5 GPU"), std::string::npos) << all;
  EXPECT_NE(all.find("Note: the queues below a are promised 2 GPUs together, more than the 1 GPU of a"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("never more than 3 GPUs"), std::string::npos) << all;
  EXPECT_NE(all.find("Jobs of class training have priority 0 and can be preempted"), std::string::npos)
      << all;
}

TEST(Config, SharingAndWatching) {
  const DaemonConfig defaults = *parse_config_text("", "t.toml");
  EXPECT_EQ(defaults.users_share, UsersShare::enforced);
  EXPECT_FALSE(defaults.policy.users_share_gpu) << "until the daemon sees that parts are enforced";
  EXPECT_EQ(defaults.watchdog.foreign, Foreign::drain);
  const auto config = parse_config_text(
      "[share]\nrecall_signal = \"none\"\nrecall_grace = \"5s\"\nrecall_end = \"never\"\n"
      "[watchdog]\npause_after = \"10s\"\nend_after = \"1m\"\nunguarded = \"act\"\nforeign = \"adopt\"\n"
      "[policy]\nusers_share_gpu = false",
      "t.toml");
  ASSERT_TRUE(config.has_value()) << config.error().message();
  EXPECT_EQ(config->users_share, UsersShare::never);
  std::string all;
  for (const std::string& sentence : explain_config(*config)) {
    EXPECT_TRUE(sentence.ends_with('.')) << sentence;
    all += sentence + "\n";
  }
  for (const char* part : {"fractions of one user only", "is never ended for it",
                           "paused after 10s, ended after 1m", "is treated alike", "promised to nobody"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " in\n" << all;
  }
  const auto open = parse_config_text(
      "[hook.chat]\nurl = \"https://a\"\nalerts = true\n[mail]\nprogram = \"/m\"\n[api]\nlisten = "
      "\"[::]:7443\"\n"
      "certificate = \"/c\"\nkey = \"/k\"",
      "t.toml");
  ASSERT_TRUE(open.has_value()) << open.error().message();
  all.clear();
  for (const std::string& sentence : explain_config(*open)) all += sentence + "\n";
  for (const char* part : {"chat is told of jobs that ask for it, and when a GPU is in trouble, unsigned",
                           "mail about jobs", "[::]:7443 too, with TLS"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " in\n" << all;
  }
  EXPECT_NE(config_error("[share]\nrecall_end = \"kill\"").find("\"requeue\", \"cancel\", \"never\""),
            std::string::npos);
  EXPECT_NE(config_error("[share]\nrecall_signal = \"KILL\"").find("\"URG\""), std::string::npos);
  EXPECT_NE(config_error("[policy]\nusers_share_gpu = \"guarded\"").find("\"enforced\""), std::string::npos);
}

// docs/configuration.md: a section a table, a row a key: | `key` | kind | `default` | meaning | `example` |
struct DocumentedKey {
  std::string kind;
  std::string default_text;
  std::string example;
};

std::string cell(const std::string& row, size_t index) {
  size_t begin = 0;
  for (size_t i = 0; i <= index; ++i) begin = row.find('|', begin) + 1;
  std::string text = row.substr(begin, row.find('|', begin) - begin);
  text.erase(0, text.find_first_not_of(' '));
  while (!text.empty() && text.back() == ' ') text.pop_back();
  if (text.size() >= 2 && text.front() == '`' && text.back() == '`') text = text.substr(1, text.size() - 2);
  return text;
}

std::map<std::string, DocumentedKey> documented_keys() {
  std::map<std::string, DocumentedKey> keys;
  std::istringstream lines(read_source_file("docs/configuration.md"));
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## [")) table = line.substr(4, line.find(']') - 4);
    if (line.starts_with("| `"))
      keys[table + "/" + cell(line, 0)] = {cell(line, 1), cell(line, 2), cell(line, 4)};
  }
  return keys;
}

TEST(Config, DocumentHasExactlyTheKeysOfTheCode) {
  auto documented = documented_keys();
  for (const ConfigKey& key : config_keys()) {
    const std::string name = std::string(key.table) + "/" + std::string(key.name);
    SCOPED_TRACE(name);
    ASSERT_EQ(documented.count(name), 1u);
    EXPECT_EQ(documented[name].kind, key.kind);
    EXPECT_EQ(documented[name].default_text, key.default_text);
    documented.erase(name);
  }
  EXPECT_TRUE(documented.empty()) << documented.begin()->first;
}

TEST(Config, DefaultsAndExamplesOfTheDocumentAreAccepted) {
  for (const auto& [name, key] : documented_keys()) {
    SCOPED_TRACE(name);
    std::string table = name.substr(0, name.find('/'));
    const std::string key_name = name.substr(name.find('/') + 1);
    if (table == "class.NAME") table = "class.inference";
    if (table == "queue.PATH") table = "queue.default";
    std::string needed;  // what the key does not go without
    if (table == "hook.NAME") {
      table = "hook.chat";
      if (key_name != "url") needed = "url = \"https://example.org\"\n";
    }
    if (table == "api" && key_name == "listen") needed = "certificate = \"/c\"\nkey = \"/k\"\n";
    const std::string without = needed.empty() ? "" : "[" + table + "]\n" + needed;
    const DaemonConfig defaults = *parse_config_text(without, "t.toml");
    const std::string head = "[" + table + "]\n" + needed + key_name + " = ";
    EXPECT_EQ(config_error(head + key.example), "(accepted)");
    if (key.default_text.empty()) continue;
    const auto with_default = parse_config_text(head + key.default_text, "t.toml");
    ASSERT_TRUE(with_default.has_value()) << with_default.error().message();
    EXPECT_EQ(*with_default, defaults) << "the document's default is another than the code's";
  }
}

}  // namespace
}  // namespace tranche
