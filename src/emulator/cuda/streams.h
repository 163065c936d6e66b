// What streams do besides launches and copies: events, words of memory, semaphores, captures.
#pragma once

#include "emulator/cuda/driver.h"

namespace tranche::emulator::cuda {

CUresult record_in_stream(const std::shared_ptr<Stream>& stream, CUevent event);
CUresult wait_in_stream(const std::shared_ptr<Stream>& stream, CUevent event);

// One operation of cuStreamBatchMemOp. A wait holds the submitting thread until the word is as it should be.
CUresult do_word(const CUstreamBatchMemOpParams& operation, const std::shared_ptr<Stream>& stream);
CUresult do_semaphores(const SemaphoreWork& work, bool signal, const std::shared_ptr<Stream>& stream);

// Work in the legacy stream while a stream that synchronises with it is being captured: the captures become
// invalid. False if there is none.
bool legacy_work_breaks_captures(Context& context, CUresult& result);

// In a capture: an event marks what the stream's next node would depend on; a stream that waits for it takes
// part.
CUresult capture_record(Stream& stream, CUevent event);
bool capture_wait(Stream& stream, CUevent event, CUresult& result);
// A stream that is destroyed in a capture makes it invalid.
void leave_capture(Stream& stream);
// What cannot be asked of a stream that is being captured; the capture becomes invalid.
CUresult refuse_if_captured(Stream& stream);

// Events shared with other processes (entry_interprocess.cc): what is recorded here is told to them, and what
// they recorded is waited for. The caller of the first two holds the event's mutex.
void record_shared(Event& event);
bool is_shared_done(Event& event);
void wait_shared(Event& event);

}  // namespace tranche::emulator::cuda
