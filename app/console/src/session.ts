/** Who uses the console: the API key, kept for this tab only, and what it may do. */
import { computed, signal } from "@preact/signals";
import type { Me } from "./api/types";

const STORED = "slackwater.key";

export type Role = "read" | "write" | "admin";
const ROLES: Role[] = ["read", "write", "admin"];

/** The key that requests carry; null: none was given. */
export const key = signal<string | null>(sessionStorage.getItem(STORED));

/** Who the service says that we are; null: not known yet, or a key is asked for. */
export const me = signal<Me | null>(null);

/** Why the key was refused; null: it was not. */
export const refusal = signal<string | null>(null);

/** Whether the service asks for a key that we do not have. */
export const isLocked = signal(false);

export const role = computed<Role | null>(() => me.value?.role ?? null);

/** Whether who is signed in has at least this role. What one may not do is not offered. */
export function may(needed: Role): boolean {
  return role.value !== null && ROLES.indexOf(role.value) >= ROLES.indexOf(needed);
}

/** Whether who is signed in sees everything there is: no scope narrows it. */
export function seesAll(): boolean {
  return me.value?.scope === null;
}

export function signIn(text: string): void {
  sessionStorage.setItem(STORED, text);
  key.value = text;
  refusal.value = null;
}

export function signOut(why: string | null = null): void {
  sessionStorage.removeItem(STORED);
  key.value = null;
  refusal.value = why;
  lock();
}

/** Ask for a key. Why the one before was refused stays. */
export function lock(): void {
  me.value = null;
  isLocked.value = true;
}
