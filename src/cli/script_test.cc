#include "cli/script.h"

#include <gtest/gtest.h>

namespace tranche::cli {
namespace {

Script read(const std::string& lines) {
  Result<Script> script = read_script_text("#!/bin/bash\n" + lines, "train.sh");
  if (!script) {
    ADD_FAILURE() << script.error().message();
    return {};
  }
  return std::move(*script);
}

std::string refused(const std::string& lines) {
  const Result<Script> script = read_script_text("#!/bin/bash\n" + lines, "train.sh");
  if (script) return "accepted";
  EXPECT_EQ(exit_code(script.error().code()), 2);
  return script.error().message();
}

std::string value(const Script& script, std::string_view key) { return script.directives.value_or(key, "-"); }

TEST(Script, DirectivesEndAtTheFirstCommand) {
  const Script script =
      read("#TRANCHE -G 2 --time=2h\n\n# a comment\n#TRANCHE -J 'my run'\necho hi\n#TRANCHE -c 4\n");
  EXPECT_EQ(value(script, "gpus"), "2");
  EXPECT_EQ(value(script, "time"), "2h");
  EXPECT_EQ(value(script, "name"), "my run");
  EXPECT_FALSE(script.directives.has("cpus"));
  EXPECT_TRUE(script.warnings.empty());
  EXPECT_TRUE(script.text.starts_with("#!/bin/bash\n#TRANCHE"));
}

TEST(Script, UnknownOwnDirectiveIsAnError) {
  EXPECT_EQ(refused("#TRANCHE --gpsu 2\n"), "train.sh:2: unknown option '--gpsu'; did you mean --gpus?");
  EXPECT_EQ(refused("\n#TRANCHE -G 1\n#TRANCHE --gpus 2\n"), "train.sh:4: --gpus is given twice");
  EXPECT_EQ(refused("#TRANCHE python x.py\n"), "train.sh:2: 'python' is not an option");
  EXPECT_EQ(refused("#TRANCHE -J 'open\n"), "train.sh:2: a quote is not closed");
  EXPECT_NE(refused("#TRANCHE --mig 1g.10gb\n").find("not available yet"), std::string::npos);
}

TEST(Script, AValueThatIsWrongNamesItsLine) {
  EXPECT_EQ(refused("#TRANCHE -c 4\n#TRANCHE -G 1.5\n"),
            "train.sh:3: --gpus: '1.5' is neither a whole number of GPUs nor a part of one; write 2 or 0.5");
  for (const char* bad :
       {"-t soon", "--mem 20GB", "-n 0", "-c 0", "--priority high", "--class fast", "-a 5-1", "-d whenever:1",
        "--begin yesterday", "--grace soon", "--export 1A=b", "--gpu-mem lots", "-G 0.5 --exclusive",
        "--requeue --no-requeue", "-J '\x1b[2J'", "-J '\u009b'", "--gpu-compute 30"}) {
    const std::string message = refused(std::string("#\n#TRANCHE ") + bad + "\n");
    EXPECT_TRUE(message.starts_with("train.sh:3: ")) << bad << ": " << message;
  }
  for (const char* bad : {"--time=soon", "--mem=lots", "--gres=gpu:x:y", "--array=3-1",
                          "--dependency=afterok", "--begin=yesterday", "--cpus-per-task=none"}) {
    const std::string message = refused(std::string("#\n#SBATCH ") + bad + "\n#SBATCH -J x\n");
    EXPECT_TRUE(message.starts_with("train.sh:3: ")) << bad << ": " << message;
  }
  EXPECT_NE(
      refused("#TRANCHE -J " + std::string(129, 'n') + "\n").find("train.sh:2: name: must be at most 128"),
      std::string::npos);
}

TEST(Script, AContradictionNamesTheLineThatMakesIt) {
  EXPECT_TRUE(refused("#TRANCHE -G 0.5\n#\n#TRANCHE --gpu-compute 30%\n#TRANCHE -c 4\n")
                  .starts_with("train.sh:4: --gpu-compute: "));
  EXPECT_TRUE(refused("#SBATCH -G 0.5\n#TRANCHE --exclusive\n").starts_with("train.sh:3: --exclusive"));
  // What a later line puts right was none.
  const Script script = read("#SBATCH -G 0.5\n#TRANCHE --exclusive\n#SBATCH -G 2\n");
  EXPECT_EQ(value(script, "gpus"), "2");
}

TEST(Script, SlurmDirectivesMeanTheSame) {
  const Script script = read(
      "#SBATCH --job-name=test\n#SBATCH -p gpu -t 1-00:00:00\n#SBATCH --gres=gpu:h100-80:2\n#SBATCH -c8\n"
      "#SBATCH --mem 64G\n#SBATCH -N 1 -n1\n#SBATCH --array=1-4%2\n#SBATCH -o slurm-%j.out\n#SBATCH "
      "--begin=now+60\n"
      "#SBATCH --dependency=afterok:7\n");
  EXPECT_EQ(value(script, "name"), "test");
  EXPECT_EQ(value(script, "queue"), "gpu");
  EXPECT_EQ(value(script, "time"), "1-00:00:00");
  EXPECT_EQ(value(script, "gpus"), "h100-80:2");
  EXPECT_EQ(value(script, "cpus"), "8");
  EXPECT_EQ(value(script, "mem"), "64G");
  EXPECT_EQ(value(script, "array"), "1-4%2");
  EXPECT_EQ(value(script, "output"), "slurm-%j.out");
  EXPECT_EQ(value(script, "begin"), "now+60s");
  EXPECT_EQ(value(script, "dependency"), "afterok:7");
  EXPECT_TRUE(script.warnings.empty());
}

TEST(Script, TheLastSlurmLineHoldsAndOwnOnesGoFirst) {
  const Script script = read("#SBATCH -t 10\n#SBATCH -t 20\n#TRANCHE -G 1\n#SBATCH -G 4\n");
  EXPECT_EQ(value(script, "time"), "20");
  EXPECT_EQ(value(script, "gpus"), "1");
}

TEST(Script, SlurmsHarmlessLinesWarn) {
  const Script script = read(
      "#SBATCH --mail-type=END --mail-user=ada@example.org\n#SBATCH -A physics\n#SBATCH --sparkle=7\n#SBATCH "
      "--nice 5\n");
  ASSERT_EQ(script.warnings.size(), 5U);
  EXPECT_EQ(script.warnings[0], "train.sh:2: #SBATCH --mail-type has no meaning here and is ignored");
  EXPECT_EQ(script.warnings[3], "train.sh:4: #SBATCH '--sparkle' is not known and is ignored");
}

TEST(Script, SlurmLinesThatChangeWhatTheJobGetsAreRefused) {
  for (const char* line :
       {"--mem-per-cpu=4G", "-N 2", "--nodes=2", "-n 4", "--ntasks=4", "--ntasks-per-node=2",
        "--gres=shard:2", "--gres=gpu:1,shard:1", "-C h100", "-w node7", "-x node7", "--exclusive",
        "--reservation=friday", "--deadline=now+2h", "--time-min=10", "--mem-per-gpu=10G", "--container=img",
        "--licenses=x", "--tmp=10G"}) {
    EXPECT_NE(refused(std::string("#SBATCH ") + line + "\n"), "accepted") << line;
  }
  EXPECT_EQ(refused("#SBATCH --mem-per-cpu=4G\n"),
            "train.sh:2: #SBATCH --mem-per-cpu changes what the job gets and cannot be obeyed; write the "
            "memory of the "
            "whole task with --mem");
}

TEST(Script, OtherMarkersAreComments) {
  const Script script = read("#SBATCHX -N 7\n##SBATCH -N 7\n# SBATCH -N 7\n#TRANCHER\n");
  EXPECT_TRUE(script.warnings.empty());
}

TEST(Script, MustBeAScript) {
  EXPECT_NE(read_script_text("echo hi\n", "x").error().message().find("#! line"), std::string::npos);
  EXPECT_NE(read_script_text(std::string("#!\0", 3), "x").error().message().find("UTF-8"), std::string::npos);
  EXPECT_NE(read_script_text("#!" + std::string(2 << 20, 'a'), "x").error().message().find("1 MiB"),
            std::string::npos);
}

}  // namespace
}  // namespace tranche::cli
