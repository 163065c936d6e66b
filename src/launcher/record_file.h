// The records of tasks, `<run-dir>/tasks/<job>.<rank>.<attempt>`: what a shepherd knows, kept where both it
// and the launcher may die. Fixed-width wire::TaskRecord, replaced by rename.
#pragma once

#include <string>
#include <vector>

#include "isolation/file.h"
#include "wire/launcher.h"

namespace tranche::launcher {

std::string record_name(const wire::TaskKey& key);

isolation::Outcome<void> write_record(int tasks_folder, const wire::TaskRecord& record);
bool record_exists(int tasks_folder, const wire::TaskKey& key);
void remove_record(int tasks_folder, const wire::TaskKey& key);
// All well-formed records; what is no record is skipped.
std::vector<wire::TaskRecord> read_records(int tasks_folder);
// The record of one task; state 0 if there is none.
wire::TaskRecord read_record(int tasks_folder, const wire::TaskKey& key);

bool same_key(const wire::TaskKey& a, const wire::TaskKey& b);

}  // namespace tranche::launcher
