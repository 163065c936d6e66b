#include "launcher/record_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tranche::launcher {

std::string record_name(const wire::TaskKey& key) {
  return std::to_string(key.job) + "." + std::to_string(key.rank) + "." + std::to_string(key.attempt);
}

bool same_key(const wire::TaskKey& a, const wire::TaskKey& b) {
  return a.job == b.job && a.rank == b.rank && a.attempt == b.attempt;
}

isolation::Outcome<void> write_record(int tasks_folder, const wire::TaskRecord& record) {
  const std::string_view content(reinterpret_cast<const char*>(&record), sizeof record);
  return isolation::replace_file_at(tasks_folder, record_name(record.key).c_str(), content, 0640);
}

bool record_exists(int tasks_folder, const wire::TaskKey& key) {
  return ::faccessat(tasks_folder, record_name(key).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void remove_record(int tasks_folder, const wire::TaskKey& key) {
  ::unlinkat(tasks_folder, record_name(key).c_str(), 0);
}

wire::TaskRecord read_record(int tasks_folder, const wire::TaskKey& key) {
  wire::TaskRecord record{};
  const auto text = isolation::read_text_at(tasks_folder, record_name(key).c_str());
  // A record of another release may be longer or shorter; the fields up to `end` were there from the start.
  if (!text || text->size() < __builtin_offsetof(wire::TaskRecord, end)) return wire::TaskRecord{};
  std::memcpy(&record, text->data(), std::min(text->size(), sizeof record));
  if (!same_key(record.key, key)) return wire::TaskRecord{};
  return record;
}

std::vector<wire::TaskRecord> read_records(int tasks_folder) {
  std::vector<wire::TaskRecord> records;
  const int own = ::openat(tasks_folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* folder = own < 0 ? nullptr : ::fdopendir(own);
  if (folder == nullptr) return records;
  while (const dirent* entry = ::readdir(folder)) {
    wire::TaskKey key{};
    unsigned long long job = 0;
    if (::sscanf(entry->d_name, "%llu.%u.%u", &job, &key.rank, &key.attempt) != 3) continue;
    key.job = job;
    if (record_name(key) != entry->d_name) continue;
    const wire::TaskRecord record = read_record(tasks_folder, key);
    if (record.state != 0) records.push_back(record);
  }
  ::closedir(folder);
  return records;
}

}  // namespace tranche::launcher
