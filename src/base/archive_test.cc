#include "base/archive.h"

#include <gtest/gtest.h>

#include "base/checksum.h"
#include "base/random.h"

namespace tranche {
namespace {

struct Part {
  int64_t amount = 0;
  std::optional<uint32_t> most;
  bool operator==(const Part&) const = default;
};
template <class Archive, OfType<Part> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [amount, most] = value;
  archive(amount, most);
}

struct Whole {
  JobId id;
  MiB memory;
  Time time;
  std::string name;
  bool open = false;
  std::vector<Part> parts;
  std::set<std::pair<Time, JobId>> times;
  std::map<std::string, int32_t> numbers;
  bool operator==(const Whole&) const = default;
};
template <class Archive, OfType<Whole> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [id, memory, time, name, open, parts, times, numbers] = value;
  archive(id, memory, time, name, open, parts, times, numbers);
}

uint64_t any_number(Random& random) { return random.next() >> random.below(64); }

Whole random_whole(Random& random) {
  Whole whole;
  whole.id = JobId(any_number(random));
  whole.memory = MiB(static_cast<int64_t>(any_number(random)) * (random.chance(1, 2) ? 1 : -1));
  whole.time = Time(static_cast<int64_t>(any_number(random)));
  whole.name.assign(random.below(20), static_cast<char>(random.below(256)));
  whole.open = random.chance(1, 2);
  for (uint64_t i = random.below(4); i > 0; --i) {
    Part part{static_cast<int64_t>(any_number(random)), std::nullopt};
    if (random.chance(1, 2)) part.most = static_cast<uint32_t>(any_number(random));
    whole.parts.push_back(part);
  }
  for (uint64_t i = random.below(4); i > 0; --i)
    whole.times.insert({Time(static_cast<int64_t>(i)), JobId(i)});
  for (uint64_t i = random.below(4); i > 0; --i) whole.numbers[std::to_string(i)] = -static_cast<int32_t>(i);
  return whole;
}

std::string bytes_of(const Whole& whole) {
  ArchiveWriter writer;
  writer(whole);
  return writer.take();
}

TEST(Archive, WhatIsWrittenReadsBackAndWritesTheSameBytes) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    const Whole whole = random_whole(random);
    const std::string bytes = bytes_of(whole);
    ArchiveReader reader(bytes);
    Whole read;
    reader(read);
    ASSERT_TRUE(reader.finish());
    ASSERT_EQ(read, whole);
  }
}

// What can be read at all is what would be written: no bytes are read as if they were others.
TEST(Archive, BytesAreCanonicalAndDamageIsReadWithoutHarm) {
  Random random(11);
  int read_well = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = bytes_of(random_whole(random));
    for (uint64_t change = random.below(3) + 1; change > 0; --change) {
      const size_t at = random.below(bytes.size());
      if (random.chance(1, 4)) {
        bytes.resize(at);
        bytes += static_cast<char>(random.below(256));
      } else {
        bytes[at] = static_cast<char>(random.below(256));
      }
    }
    ArchiveReader reader(bytes);
    Whole read;
    reader(read);
    if (!reader.finish()) continue;
    ++read_well;
    ASSERT_EQ(bytes_of(read), bytes);
  }
  EXPECT_GT(read_well, 100);
}

TEST(Archive, RefusesNumbersThatAreTooLongOrTooLarge) {
  const auto reads = [](std::string_view bytes, auto value) {
    ArchiveReader reader(bytes);
    reader(value);
    return reader.finish().has_value();
  };
  EXPECT_TRUE(reads(std::string_view("\x7f", 1), uint32_t{}));
  EXPECT_FALSE(reads(std::string_view("\xff\x00", 2), uint32_t{}));              // a leading zero
  EXPECT_FALSE(reads(std::string_view("\x80\x80\x80\x80\x10", 5), uint32_t{}));  // 2^32
  EXPECT_TRUE(reads(std::string_view("\x80\x80\x80\x80\x10", 5), uint64_t{}));
  EXPECT_FALSE(reads(std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10), uint64_t{}));
  EXPECT_FALSE(reads(std::string_view("\x02", 1), false));
  EXPECT_FALSE(reads(std::string_view("\x05"
                                      "abcd",
                                      5),
                     std::string()));
  EXPECT_FALSE(reads(std::string_view("\xff\xff\xff\xff\x0f", 5), std::vector<uint64_t>()));
}

TEST(Checksum, IsTheOneOfZipAndEthernet) {
  EXPECT_EQ(checksum("123456789"), 0xCBF43926U);
  EXPECT_EQ(checksum("6789", checksum("12345")), 0xCBF43926U);
  EXPECT_EQ(checksum("The quick brown fox jumps over the lazy dog"), 0x414FA339U);
}

}  // namespace
}  // namespace tranche
