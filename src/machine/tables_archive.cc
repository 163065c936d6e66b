#include "machine/tables_archive.h"

#include <map>
#include <memory>

#include "base/archive.h"
#include "model/archive.h"

namespace tranche::machine {

template <class Archive, OfType<TaskEntry> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [key, node, slices, state, pid, started, ended, has_end, cause, code, signal] = value;
  archive(key, node, slices, state, started, ended, has_end, cause, code, signal);
}
template <class Archive, OfType<JobFault> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [time, gpu, xid] = value;
  archive(time, gpu, xid);
}
template <class Archive, OfType<StateChange> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [time, state, reason] = value;
  archive(time, state, reason);
}
template <class Archive, OfType<JobRecord> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [id, array, array_index, array_count, spec, name, request, state, attempt, first_attempt, submitted,
         started, ended, reason, private_reason, tasks, history, fault] = value;
  archive(id, array, array_index, array_count, name, state, attempt, first_attempt, submitted, started, ended,
          reason, tasks, history, fault);
}
template <class Archive, OfType<RecordedFault> Value>
void archive_fields(Archive& archive, Value& value) {
  auto& [time, xid, jobs] = value;
  archive(time, xid, jobs);
}

struct TablesArchive {
  static void write(ArchiveWriter& archive, const std::vector<const JobRecord*>& records) {
    const JobSpec* before = nullptr;
    archive.list(records, [&](const JobRecord* record) {
      // Elements of an array share one.
      const bool has_own = record->spec.get() != before;
      archive(has_own, *record);
      if (has_own) archive(*record->spec);
      before = record->spec.get();
    });
  }

  static void read(ArchiveReader& archive, JobTable& jobs) {
    std::vector<JobRecord> records;
    std::shared_ptr<const JobSpec> before;
    archive.list(records, [&](JobRecord& record) {
      bool has_own = false;
      archive(has_own, record);
      if (has_own) {
        auto spec = std::make_shared<JobSpec>();
        archive(*spec);
        before = shared_in_array(jobs, record, std::move(spec));
      }
      record.spec = before;
      if (record.spec == nullptr || !record.id.is_set()) archive.refuse();
    });
    if (archive.failed()) return;
    for (JobRecord& record : records) {
      const auto [place, is_new] = jobs.jobs_.try_emplace(record.id);
      if (!is_new) --jobs.count_of(place->second.state);
      ++jobs.count_of(record.state);
      if (is_final(record.state)) {
        jobs.live_.erase(record.id);
      } else {
        jobs.live_.insert(record.id);
      }
      place->second = std::move(record);
    }
  }

  static void write(ArchiveWriter& archive, const FaultLog& faults) { archive(faults.faults_); }
  static void read(ArchiveReader& archive, FaultLog& faults) { archive(faults.faults_); }

 private:
  // The elements of an array are written where they ended, and share what they share as before.
  static std::shared_ptr<const JobSpec> shared_in_array(const JobTable& jobs, const JobRecord& record,
                                                        std::shared_ptr<const JobSpec> spec) {
    if (!record.array.is_set()) return spec;
    const auto first = jobs.jobs_.lower_bound(JobId(record.array.value()));
    const bool is_same =
        first != jobs.jobs_.end() && first->second.array == record.array && *first->second.spec == *spec;
    return is_same ? first->second.spec : spec;
  }
};

std::string save_tables(const JobTable& jobs, const FaultLog& faults) {
  std::vector<const JobRecord*> live;
  for (const JobId id : jobs.live()) live.push_back(jobs.find(id));
  ArchiveWriter archive;
  archive(jobs.next_id());
  TablesArchive::write(archive, live);
  TablesArchive::write(archive, faults);
  return archive.take();
}

std::string save_records(const JobTable& jobs, const std::vector<JobId>& ids) {
  std::vector<const JobRecord*> records;
  for (const JobId id : ids) {
    if (const JobRecord* record = jobs.find(id)) records.push_back(record);
  }
  ArchiveWriter archive;
  TablesArchive::write(archive, records);
  return archive.take();
}

Result<void> load_tables(std::string_view bytes, JobTable& jobs, FaultLog& faults) {
  ArchiveReader archive(bytes);
  JobId next;
  archive(next);
  TablesArchive::read(archive, jobs);
  TablesArchive::read(archive, faults);
  if (next.is_set()) jobs.skip_ids_through(JobId(next.value() - 1));
  return archive.finish();
}

Result<void> load_records(std::string_view bytes, JobTable& jobs) {
  ArchiveReader archive(bytes);
  TablesArchive::read(archive, jobs);
  return archive.finish();
}

}  // namespace tranche::machine
