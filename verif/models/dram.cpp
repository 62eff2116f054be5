// A DRAM channel as its pins see it: a checker of every command, and the memory behind it.
//
// Written from the public tables, and not from the controller: values of timings and of the organisation stand here once
// more, and rules are kept per bank, bank group and pseudo-channel as time stamps, where the controller has a schedule.
// Sources of the values: JESD235 and JESD238 for the rules; DRAMsim3 (HBM2_8Gb_x128.ini), Ramulator (HBM2.cpp, HBM3.cpp)
// and DRAMSys (HBM2.json) for the numbers, the strictest of them where they differ.

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace dram {

struct Table {
    const char* name;
    int groups, banks_in_group, rows, row_bursts;
    int RL, WL, BURST, RCDRD, RCDWR, RP, RAS, RC, RRDS, RRDL, FAW, CCDS, CCDL, WTRS, WTRL, RTW, RTP, WR, RFC, RFCSB, RREFD, REFI,
        POSTPONE;
};

// One row per device; the columns in the order of the struct. HBM2: 1 ns, HBM3: 0.625 ns.
const Table TABLES[] = {
    {"hbm2-2gb", 4, 2, 16384, 32, 14, 4, 2, 14, 14, 14, 34, 48, 4, 6, 30, 2, 4, 6, 8, 14, 6, 16, 160, 160, 8, 3900, 8},
    {"hbm2-4gb", 4, 4, 16384, 32, 14, 4, 2, 14, 14, 14, 34, 48, 4, 6, 30, 2, 4, 6, 8, 14, 6, 16, 260, 160, 8, 3900, 8},
    {"hbm2-8gb", 4, 4, 32768, 32, 14, 4, 2, 14, 14, 14, 34, 48, 4, 6, 30, 2, 4, 6, 8, 14, 6, 16, 350, 200, 8, 3900, 8},
    {"hbm3-4gb", 4, 4, 16384, 32, 20, 10, 2, 31, 15, 26, 45, 72, 4, 5, 24, 2, 4, 7, 10, 20, 9, 33, 416, 320, 13, 6240, 8},
};

enum RowOp { ROW_NOP, ACT, PRE, PREA, REF, REFSB };
enum ColumnOp { COLUMN_NOP, RD, WR };

constexpr int64_t NEVER = -1'000'000'000;

struct Checker {
    struct Bank {
        int open = -1;  // row
        int64_t act = NEVER, pre = NEVER, rd = NEVER, wr = NEVER, refsb = NEVER;
        uint64_t refreshed = 0;
        bool in_round = false;
    };
    struct Pseudo {
        std::vector<Bank> banks;
        std::vector<int64_t> group_act, group_rd, group_wr;
        int64_t act = NEVER, rd = NEVER, wr = NEVER, ref = NEVER, refsb = NEVER;
        int refsb_bank = -1, pins_from = 0;
        std::deque<int64_t> activations;  // ACT and REFSB, for the window of four
        int64_t pins_free = NEVER;
    };
    const Table& t;
    Pseudo pcs[2];
    int64_t row_free = NEVER, column_free = NEVER;
    std::map<std::string, uint64_t> counts;
    std::string first;
    uint64_t total = 0, commands[2][6] = {};
    explicit Checker(const Table& table) : t(table) {
        for (auto& p : pcs) {
            p.banks.resize(t.groups * t.banks_in_group);
            p.group_act.assign(t.groups, NEVER);
            p.group_rd.assign(t.groups, NEVER);
            p.group_wr.assign(t.groups, NEVER);
        }
    }
    void fail(const char* rule, int64_t now, int pc, int bank, int64_t gap, int64_t least) {
        counts[rule]++;
        if (!total++) {
            char text[200];
            std::snprintf(text, sizeof text, "clock %lld: %s: pseudo-channel %d bank %d, %lld clocks of %lld",
                          (long long)now, rule, pc, bank, (long long)gap, (long long)least);
            first = text;
        }
    }
    void least(const char* rule, int64_t now, int64_t since, int64_t clocks, int pc, int bank) {
        if (now - since < clocks) fail(rule, now, pc, bank, now - since, clocks);
    }
    void activation(int64_t now, int pc, int bank) {  // of ACT and of REFSB, which opens a row inside
        Pseudo& p = pcs[pc];
        int group = bank / t.banks_in_group;
        for (int g = 0; g < t.groups; g++)
            least(g == group ? "tRRD_L" : "tRRD_S", now, p.group_act[g], g == group ? t.RRDL : t.RRDS, pc, bank);
        if (p.refsb_bank != bank) least("tRREFD", now, p.refsb, t.RREFD, pc, bank);
        least("tRFC", now, p.ref, t.RFC, pc, bank);
        if (p.activations.size() == 4) {
            least("tFAW", now, p.activations.front(), t.FAW, pc, bank);
            p.activations.pop_front();
        }
        p.activations.push_back(now);
    }
    void close(int64_t now, int pc, int number) {
        Bank& b = pcs[pc].banks[number];
        if (b.open < 0) return;
        least("tRAS", now, b.act, t.RAS, pc, number);
        least("tRTP", now, b.rd, t.RTP, pc, number);
        least("tWR", now, b.wr, t.WL + t.BURST + t.WR, pc, number);
        b.open = -1;
        b.pre = now;
    }
    void idle(int64_t now, int pc, int number) {  // as every refresh needs it
        Bank& b = pcs[pc].banks[number];
        if (b.open >= 0) fail("bank state", now, pc, number, 0, 0);
        least("tRP", now, b.pre, t.RP, pc, number);
        least("tRFCSB", now, b.refsb, t.RFCSB, pc, number);
    }
    void refreshed(int64_t now, int pc, int number) {
        Bank& b = pcs[pc].banks[number];
        b.refreshed++;
        if (int64_t(b.refreshed) - now / t.REFI > t.POSTPONE) fail("tREFI early", now, pc, number, b.refreshed, now / t.REFI);
    }
    void row(int64_t now, int op, int pc, int number, int address) {
        if (op == ROW_NOP) return;
        if (op > REFSB || number >= int(pcs[0].banks.size()) || address >= t.rows) { fail("command", now, pc, number, op, 0); return; }
        commands[pc][op]++;
        if (now < row_free) fail("row bus", now, pc, number, 0, 0);
        row_free = now + (op == ACT ? 2 : 1);
        Pseudo& p = pcs[pc];
        Bank& b = p.banks[number];
        switch (op) {
        case ACT:
            if (b.open >= 0) fail("bank state", now, pc, number, 0, 0);
            least("tRP", now, b.pre, t.RP, pc, number);
            least("tRC", now, b.act, t.RC, pc, number);
            least("tRFCSB", now, b.refsb, t.RFCSB, pc, number);
            activation(now, pc, number);
            b.open = address;
            b.act = p.act = p.group_act[number / t.banks_in_group] = now;
            break;
        case PRE:
            close(now, pc, number);
            break;
        case PREA:
            for (int i = 0; i < int(p.banks.size()); i++) close(now, pc, i);
            break;
        case REF:
            least("tRFC", now, p.ref, t.RFC, pc, number);
            for (int i = 0; i < int(p.banks.size()); i++) {
                idle(now, pc, i);
                refreshed(now, pc, i);
                p.banks[i].in_round = false;
            }
            p.ref = now;
            break;
        case REFSB: {
            idle(now, pc, number);
            activation(now, pc, number);
            // The device counts rows: no bank may come again before all have come.
            if (b.in_round) fail("refresh round", now, pc, number, 0, 0);
            b.in_round = true;
            if (std::all_of(p.banks.begin(), p.banks.end(), [](const Bank& x) { return x.in_round; }))
                for (auto& x : p.banks) x.in_round = false;
            refreshed(now, pc, number);
            b.refsb = p.refsb = now;
            p.refsb_bank = number;
            break;
        }
        }
    }
    // Gives the row, or -1.
    int column(int64_t now, int op, int pc, int number, int address) {
        if (op == COLUMN_NOP) return -1;
        if (op > WR || number >= int(pcs[0].banks.size()) || address >= t.row_bursts) { fail("command", now, pc, number, op, 1); return -1; }
        if (now < column_free) fail("column bus", now, pc, number, 0, 0);
        column_free = now + 1;
        Pseudo& p = pcs[pc];
        Bank& b = p.banks[number];
        int group = number / t.banks_in_group;
        if (b.open < 0) fail("bank state", now, pc, number, 0, 0);
        least("tRCD", now, b.act, op == RD ? t.RCDRD : t.RCDWR, pc, number);
        for (int g = 0; g < t.groups; g++) {
            int64_t same = op == RD ? p.group_rd[g] : p.group_wr[g];
            least(g == group ? "tCCD_L" : "tCCD_S", now, same, g == group ? t.CCDL : t.CCDS, pc, number);
            if (op == RD)
                least(g == group ? "tWTR_L" : "tWTR_S", now, p.group_wr[g], t.WL + t.BURST + (g == group ? t.WTRL : t.WTRS), pc, number);
            else
                least("tRTW", now, p.group_rd[g], t.RTW, pc, number);
        }
        int64_t from = now + (op == RD ? t.RL : t.WL);
        if (from < p.pins_free) fail("data bus", now, pc, number, from, p.pins_free);
        p.pins_free = from + t.BURST;
        if (op == RD) b.rd = p.rd = p.group_rd[group] = now;
        else b.wr = p.wr = p.group_wr[group] = now;
        return b.open;
    }
    // Every clock.
    void tick(int64_t now) {
        if (now % t.REFI || !now) return;
        for (int pc = 0; pc < 2; pc++)
            for (int i = 0; i < int(pcs[pc].banks.size()); i++) {
                int64_t late = now / t.REFI - int64_t(pcs[pc].banks[i].refreshed);
                if (late > t.POSTPONE) fail("tREFI", now, pc, i, late, t.POSTPONE);
            }
    }
};

// Words of 64 bits, their check bits computed when they are read; what is wrong with them stands beside.
struct Memory {
    const Table& t;
    const int channels;
    size_t bytes;
    uint8_t* data;
    uint64_t code[8] = {};  // for each check bit, the data bits it covers; all 0: no code
    struct Error { uint64_t data; uint8_t check; };
    std::unordered_map<uint64_t, Error> errors;  // by number of the word
    uint64_t wrong_checks = 0;
    Memory(const Table& table, int channels_) : t(table), channels(channels_) {
        bytes = size_t(2) * t.groups * t.banks_in_group * t.rows * t.row_bursts * 32 * channels;
        data = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    }
    ~Memory() { munmap(data, bytes); }
    // A burst: the first clock's words of all channels, then the second's.
    size_t burst(int pc, int bank, int row, int column) const {
        return (((size_t(bank) * t.rows + row) * t.row_bursts + column) * 2 + pc) * 32 * channels;
    }
    uint8_t check(uint64_t word) const {
        uint8_t out = 0;
        for (int i = 0; i < 8; i++) out |= __builtin_parityll(word & code[i]) << i;
        return out;
    }
    void read(size_t at, uint64_t& word, uint8_t& check_bits) const {
        std::memcpy(&word, data + at, 8);
        check_bits = check(word);
        if (errors.empty()) return;
        auto found = errors.find(at / 8);
        if (found != errors.end()) word ^= found->second.data, check_bits ^= found->second.check;
    }
    void write(size_t at, uint64_t word, uint8_t check_bits) {
        std::memcpy(data + at, &word, 8);
        if (!errors.empty()) errors.erase(at / 8);
        if (code[0] && check_bits != check(word)) wrong_checks++;
    }
};

// Pins of channels in step. `row` and `column` as they stand in this clock; reads come back through `out`.
struct Device {
    Checker checker;
    Memory memory;
    const int phy;
    int64_t now = 0;
    bool silent = false;
    struct Slot { bool valid = false; size_t at = 0; };
    static constexpr int RING = 128;
    Slot reads[2][RING], writes[2][RING];
    Device(const Table& t, int channels, int phy_clocks) : checker(t), memory(t, channels), phy(phy_clocks) {}
    void commands(int row_op, int row_pc, int row_bank, int row, int column_op, int column_pc, int column_bank, int column) {
        checker.tick(now);
        checker.row(now, row_op, row_pc, row_bank, row);
        int open = checker.column(now, column_op, column_pc, column_bank, column);
        if (open < 0) return;
        const Table& t = checker.t;
        for (int i = 0; i < t.BURST; i++) {
            size_t at = memory.burst(column_pc, column_bank, open, column) + size_t(i) * 16 * memory.channels;
            auto& ring = column_op == RD ? reads[column_pc] : writes[column_pc];
            ring[(now + (column_op == RD ? t.RL + phy : t.WL) + i) % RING] = {true, at};
        }
    }
    // What the pins carry in this clock.
    void write_pins(const uint32_t* words, const uint32_t* checks) {
        int words_each = 2 * memory.channels;
        for (int pc = 0; pc < 2; pc++) {
            Slot& slot = writes[pc][now % RING];
            if (!slot.valid) continue;
            slot.valid = false;
            for (int i = 0; i < words_each; i++) {
                int w = pc * words_each + i;
                uint64_t word = words[2 * w] | uint64_t(words[2 * w + 1]) << 32;
                memory.write(slot.at + 8 * i, word, uint8_t(checks[w / 4] >> (8 * (w % 4))));
            }
        }
    }
    unsigned read_pins(uint32_t* words, uint32_t* checks) {
        int words_each = 2 * memory.channels;
        unsigned valid = 0;
        for (int pc = 0; pc < 2; pc++) {
            Slot& slot = reads[pc][now % RING];
            if (!slot.valid) continue;
            slot.valid = false;
            if (silent) continue;
            valid |= 1u << pc;
            for (int i = 0; i < words_each; i++) {
                int w = pc * words_each + i;
                uint64_t word;
                uint8_t check;
                memory.read(slot.at + 8 * i, word, check);
                words[2 * w] = uint32_t(word), words[2 * w + 1] = uint32_t(word >> 32);
                checks[w / 4] = (checks[w / 4] & ~(0xffu << (8 * (w % 4)))) | uint32_t(check) << (8 * (w % 4));
            }
        }
        return valid;
    }
};

}  // namespace dram

extern "C" {

// The checker alone, for traces of commands: kind 0 row, 1 column.
dram::Checker* checker_new(int table) { return new dram::Checker(dram::TABLES[table]); }
void checker_free(dram::Checker* c) { delete c; }
void checker_command(dram::Checker* c, int64_t now, int kind, int op, int pc, int bank, int address) {
    if (kind == 0) c->row(now, op, pc, bank, address);
    else c->column(now, op, pc, bank, address);
}
void checker_tick(dram::Checker* c, int64_t now) { c->tick(now); }
const char* checker_first(dram::Checker* c) { return c->first.c_str(); }
uint64_t checker_total(dram::Checker* c) { return c->total; }
// "rule=count" of all rules broken, with ; between.
const char* checker_counts(dram::Checker* c) {
    static std::string text;
    text.clear();
    for (auto& [rule, count] : c->counts) text += (text.empty() ? "" : ";") + rule + "=" + std::to_string(count);
    return text.c_str();
}
int table_count() { return int(sizeof dram::TABLES / sizeof dram::TABLES[0]); }
const char* table_name(int i) { return dram::TABLES[i].name; }
void table_values(int i, int* out) { std::memcpy(out, &dram::TABLES[i].groups, sizeof(dram::Table) - offsetof(dram::Table, groups)); }

}  // extern "C"
